// Gyre's <info> elements in hwloc's XML: traits of GPUs and ports, UCX's transports, and links,
// each as words "key=value" with blanks between. A value has no blanks.
#pragma once

#include "lib/topology/topology.h"
#include "lib/topology/xml.h"

#include <map>
#include <string>
#include <string_view>

namespace gyre::topology {

inline constexpr std::string_view gpu_info = "GyreGpu", port_info = "GyrePort",
                                  link_info = "GyreLink", nv_switch_info = "GyreNvSwitch",
                                  pci_switch_info = "GyrePciSwitch", ucx_info = "GyreUcx";

std::string gpu_words(const GpuTraits& gpu);
std::string port_words(const TopologyNode& port);
std::string ucx_words(const UcxTransport& transport);

// `element`: who is to blame in an error.
Result<GpuTraits> read_gpu_words(std::string_view words, const XmlElement& element);
// The traits and the speed go into `port`.
Status read_port_words(std::string_view words, const XmlElement& element, TopologyNode& port);
Result<UcxTransport> read_ucx_words(std::string_view words, const XmlElement& element);
// Nodes that links may end at, by the words for them: "gpu:0000:3b:00.0", "numa:1", "nvswitch:0".
using LinkEnds = std::map<std::string, int, std::less<>>;
LinkEnds link_ends(const Topology& topology);
std::string link_words(const LinkEnds& ends, const TopologyLink& link);
Result<TopologyLink> read_link_words(std::string_view words, const XmlElement& element,
                                     const LinkEnds& ends);

}  // namespace gyre::topology
