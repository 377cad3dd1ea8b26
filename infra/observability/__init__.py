"""What people see of a deployment: dashboards, alarms, saved queries, the usage table."""
