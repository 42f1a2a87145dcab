// Results as one page that needs nothing else: no network, no script. It follows the reader's
// choice of light or dark, prints, and fits a narrow screen.
#pragma once

#include <string>
#include <vector>

#include "bench/result.h"
#include "core/base/status.h"

namespace zoffload::bench {

// REQUIRES: the documents are ones that read_document() or Document::to_json() gave.
std::string render_html(const std::vector<Json>& documents, const std::vector<std::string>& labels);

Status write_html(const Json& document, const std::string& path);
// Several documents overlaid. `labels` tell them apart, one for each.
Status write_html(const std::vector<Json>& documents, const std::vector<std::string>& labels,
                  const std::string& path);

}  // namespace zoffload::bench
