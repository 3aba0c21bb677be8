"""How a process of Spillway works with what runs it: its log, and its service manager."""
