// gyre link: before a job, measures each link that it would use and names the bad ones.
#pragma once

namespace gyre::tools {

int link_command(int argc, char** argv);

}  // namespace gyre::tools
