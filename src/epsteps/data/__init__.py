"""Records: where they come from, how their cells enter, and the engines that add them up."""
