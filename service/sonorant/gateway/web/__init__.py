"""HTTP as all protocols need it: connections, limits, bodies, sockets, what is refused at the edge."""
