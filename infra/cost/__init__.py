"""What a deployment costs a month while nothing happens, from its templates."""
