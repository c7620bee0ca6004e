"""What the line magics tell and do, one file each; `agent` holds the table of `%agent`."""
