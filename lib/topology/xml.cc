#include "lib/topology/xml.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tinyxml2.h>

namespace gyre::topology {
namespace {

constexpr std::size_t max_elements = 1'000'000;

// Copies what the library has read. Its parser has bounded the depth (500 levels).
Status copy(const tinyxml2::XMLElement& from, XmlElement& to, std::size_t& count) {
  to.name = from.Name();
  to.line = from.GetLineNum();
  if (++count > max_elements)
    return to.wrong(fmt::format("the file has more than {} elements", max_elements));
  for (const auto* one = from.FirstAttribute(); one != nullptr; one = one->Next())
    to.attributes.emplace_back(one->Name(), one->Value());
  for (const auto* one = from.FirstChildElement(); one != nullptr; one = one->NextSiblingElement())
    GYRE_TRY(copy(*one, to.children.emplace_back(), count));
  return {};
}

void print(const XmlElement& element, int depth, std::string& text) {
  text.append(static_cast<std::size_t>(2 * depth), ' ');
  text += "<" + element.name;
  for (const auto& [key, value] : element.attributes)
    text += fmt::format(" {}=\"{}\"", key, xml_text(value));
  if (element.children.empty()) {
    text += "/>\n";
    return;
  }
  text += ">\n";
  for (const XmlElement& child : element.children) print(child, depth + 1, text);
  text.append(static_cast<std::size_t>(2 * depth), ' ');
  text += fmt::format("</{}>\n", element.name);
}

// What the parser minds, without its own numbers: "Error=XML_ERROR_PARSING_ATTRIBUTE ErrorID=..".
std::string reason_of(const tinyxml2::XMLDocument& document) {
  std::string name = document.ErrorName();
  if (name.starts_with("XML_")) name.erase(0, 4);
  if (name.starts_with("ERROR_")) name.erase(0, 6);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c == '_' ? ' ' : static_cast<char>(tolower(c)); });
  return name;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '&')
      safe += "&amp;";
    else if (letter == '<')
      safe += "&lt;";
    else if (letter == '>')
      safe += "&gt;";
    else if (letter == '"')
      safe += "&quot;";
    else if (static_cast<unsigned char>(letter) >= ' ')
      safe += letter;
  }
  return safe;
}

std::string_view XmlElement::attribute(std::string_view key) const {
  const auto found =
      std::ranges::find(attributes, key, &std::pair<std::string, std::string>::first);
  return found == attributes.end() ? std::string_view() : std::string_view(found->second);
}

bool XmlElement::has(std::string_view key) const {
  return std::ranges::any_of(attributes, [&](const auto& one) { return one.first == key; });
}

Result<std::int64_t> XmlElement::integer(std::string_view key, std::int64_t missing,
                                         std::int64_t min, std::int64_t max) const {
  if (!has(key)) return missing;
  std::string_view digits = attribute(key);
  const bool is_hexadecimal = digits.starts_with("0x");
  if (is_hexadecimal) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.begin(), digits.end(), value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != digits.end() || value < min || value > max)
    return wrong(fmt::format("{}=\"{}\" is no whole number from {} to {}", key,
                             attribute(key).substr(0, 80), min, max));
  return value;
}

Result<double> XmlElement::figure(std::string_view key, double missing) const {
  if (!has(key)) return missing;
  const std::string_view digits = attribute(key);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
  if (error != std::errc() || end != digits.end() || !std::isfinite(value) || value < 0)
    return wrong(fmt::format("{}=\"{}\" is no figure from 0 up", key, digits.substr(0, 80)));
  return value;
}

Status XmlElement::wrong(std::string_view reason) const {
  return invalid_argument(fmt::format("line {}, <{}>: {}", line, name.substr(0, 40), reason));
}

Result<XmlElement> parse_xml(std::string_view text) {
  if (text.size() > max_xml_bytes)
    return invalid_argument(
        fmt::format("it has {} bytes; the most are {}", text.size(), max_xml_bytes));
  tinyxml2::XMLDocument document;
  if (document.Parse(text.data(), text.size()) != tinyxml2::XML_SUCCESS)
    return invalid_argument(
        fmt::format("line {}: this is no XML ({})", document.ErrorLineNum(), reason_of(document)));
  const tinyxml2::XMLElement* const root = document.RootElement();
  if (root == nullptr) return invalid_argument("it has no element");
  XmlElement copied;
  std::size_t count = 0;
  GYRE_TRY(copy(*root, copied, count));
  return copied;
}

std::string print_xml(const XmlElement& root, std::string_view heading) {
  std::string text(heading);
  print(root, 0, text);
  return text;
}

}  // namespace gyre::topology
