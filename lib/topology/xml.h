// XML as a value: elements with attributes, and the line that each began in, for errors. Text
// between elements is not kept: no format of topologies has any. Parsing is TinyXML-2's.
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::topology {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  int line = 0;

  // Empty if it has none of that name.
  std::string_view attribute(std::string_view key) const;
  bool has(std::string_view key) const;
  // The attribute as a number. `missing` if there is none; an error if it is no number, or outside
  // of the limits.
  Result<std::int64_t> integer(std::string_view key, std::int64_t missing, std::int64_t min,
                               std::int64_t max) const;
  Result<double> figure(std::string_view key, double missing) const;  // finite, not negative
  void set(std::string key, std::string value) {
    attributes.emplace_back(std::move(key), std::move(value));
  }
  // "line 12, <gpu>: " and the reason.
  Status wrong(std::string_view reason) const;
};

inline constexpr std::size_t max_xml_bytes = 64 << 20;

// The outermost element.
Result<XmlElement> parse_xml(std::string_view text);
// For an attribute or between elements: what XML does not allow as it is, as an entity; control
// characters are left out.
std::string xml_text(std::string_view text);
std::string print_xml(const XmlElement& root, std::string_view heading = {});

}  // namespace gyre::topology
