"""Use cases: gather through ports, decide purely, apply; each returns what it carried out."""
