"""Pure decisions: frozen values in, frozen decisions out; no clock, log, environment or I/O."""
