// How the bytes of a tier are shared out over its paths, so that all drives finish together: which
// path a new extent goes to, where in that path's file it lies, and, when the speeds measured at
// run time disagree with the weights, to which path an extent moves with its next store. Pure
// bookkeeping: no I/O, no time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace zoffload {

class PathShares {
 public:
  struct File {
    double weight = 1;   // relative bandwidth, above 0
    uint64_t bytes = 0;  // what the file holds
  };
  struct Place {
    uint32_t path = 0;
    uint64_t offset = 0;  // in the path's file
    friend bool operator==(const Place&, const Place&) = default;
  };

  explicit PathShares(const std::vector<File>& files);

  // For a new extent. Error diffusion: it goes to the path that is furthest behind its share, which
  // is then ahead by less than this one extent. REQUIRES: some file has room for it.
  Place place(uint64_t bytes);

  // Where the next store of the extent at `now` goes. A place other than `now` is on a path that is
  // behind its share by more than this extent while now's path is ahead; the extent counts there at
  // once, and holds both places until kept() or moved().
  Place next(Place now, uint64_t bytes);
  void moved(Place from, uint64_t bytes);          // the store went well: `from` is free
  void kept(Place now, Place to, uint64_t bytes);  // it failed: `to` is free

  // What a path moved while it was busy. True when the shares have changed: they follow the
  // measured speeds once these have disagreed with them three times in a row, each time heard from
  // every path.
  bool measured(uint32_t path, double bytes_per_s);

  double share(uint32_t path) const { return paths_[path].share; }              // they add up to 1
  double first_share(uint32_t path) const { return paths_[path].first_share; }  // by the weights
  double bytes_per_s(uint32_t path) const { return paths_[path].bytes_per_s; }  // 0: not measured
  // Speed over weight, beside that of the best path: 1 is as expected. REQUIRES: all are measured.
  double of_expected(uint32_t path) const;
  uint64_t used_bytes(uint32_t path) const { return paths_[path].used_bytes; }

 private:
  struct Path {
    uint64_t file_bytes = 0;
    double share = 0;
    double first_share = 0;
    uint64_t used_bytes = 0;                         // of the extents that count here
    uint64_t end_bytes = 0;                          // no place lies above
    std::map<uint64_t, std::vector<uint64_t>> free;  // offsets, by the size of the place
    double bytes_per_s = 0;                          // smoothed
    bool heard = false;                              // since the last comparison

    bool has_room(uint64_t bytes) const;
  };

  double behind_bytes(const Path& path, uint64_t total_bytes) const;
  Place take(uint32_t path, uint64_t bytes);
  void free(Place place, uint64_t bytes);
  double measured_share(const Path& path) const;
  bool disagrees() const;

  std::vector<Path> paths_;
  uint64_t total_bytes_ = 0;         // of all extents
  uint32_t disagreement_count_ = 0;  // in a row
};

}  // namespace zoffload
