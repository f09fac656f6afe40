"""Watch running gangs: interruptions, replanning, handover, saves."""
