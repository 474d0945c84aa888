"""Parts of the data on a cluster. Its modules are imported when there is one."""
