"""What Spindown, gpuhunt and SkyPilot take from one catalogue, priced by measured throughput."""
