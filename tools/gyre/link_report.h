// The report of gyre link: a table for people, JSON for programs, a heat map as SVG.
#pragma once

#include "tools/gyre/link_verdict.h"

#include <string>

namespace gyre::tools {

std::string link_text(const LinkJobFacts& facts, const LinkVerdict& verdict);

// The fields and their meanings, for --help.
extern const char* const link_json_schema;
std::string link_json(const LinkJobFacts& facts, const LinkVerdict& verdict);

// Rank by rank: the row sends, the column receives.
std::string link_svg(const LinkJobFacts& facts, const LinkVerdict& verdict);

}  // namespace gyre::tools
