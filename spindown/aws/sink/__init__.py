"""Where people and other systems are told: SNS and EventBridge."""
