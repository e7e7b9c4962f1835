// `gyre topo`: this host, or a described one, as Gyre sees it: parts, links, ports, and the paths
// between them.
#pragma once

namespace gyre::tools {

int topo_command(int argc, char** argv);

}  // namespace gyre::tools
