"""The specs of the Container Device Interface: names, places, JSON. No other module knows their form."""
