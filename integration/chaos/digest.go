package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirmq/weir/integration/chaos/check"
	"github.com/weirmq/weir/integration/chaos/history"
	"github.com/weirmq/weir/wire/batch"
)

// digests reads what the hosts hold of each partition up to where it was read back.
func (r *Run) digests(ends map[history.Key]int64) []check.Replica {
	var out []check.Replica
	for _, t := range r.topics {
		for p := range t.Partitions {
			k := t.Key(int32(p))
			for _, h := range r.alive() {
				sum, err := digest(filepath.Join(h.Data(), fmt.Sprintf("%s-%d", t.Name, p)), ends[k])
				if errors.Is(err, os.ErrNotExist) {
					continue // not a replica of this partition
				}
				if err != nil { // no two are unreadable alike
					r.note("node %d: %s-%d: %v", h.ID, t.Name, p, err)
					sum = fmt.Sprintf("unreadable on node %d", h.ID)
				}
				out = append(out, check.Replica{Key: k, Node: fmt.Sprintf("node %d", h.ID), End: ends[k], Sum: sum})
			}
		}
	}
	return out
}

// digest covers the whole batches below end; one that is not there makes another digest.
func digest(dir string, end int64) (string, error) {
	if _, err := os.Stat(dir); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		for b, err := range batch.Run(text).Batches() {
			if err != nil {
				return "", fmt.Errorf("%s: %w", filepath.Base(f), err)
			}
			if int64(b.End()) <= end {
				sum.Write(b)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
