"""What a person asks of a deployment: plan, why, status, bill, doctor, rightsize, drain."""
