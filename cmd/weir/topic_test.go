package main

import (
	"strings"
	"testing"
	"time"
)

// says runs a command line and wants its exit code and texts in what it printed,
// spaces aside.
func (n *node) says(args string, code int, want ...string) {
	n.Helper()
	got, out, errs := n.weir("", args)
	all := strings.Join(strings.Fields(out+" "+errs), " ")
	if got != code {
		n.Errorf("weir %s: exit code %d, want %d: %s", args, got, code, all)
	}
	for _, w := range want {
		if !strings.Contains(all, w) {
			n.Errorf("weir %s: %q lacks %q", args, all, w)
		}
	}
}

func TestTopicVerbs(t *testing.T) {
	s := startNode(t)
	s.says("topic create t -p 1", 0, "t created")
	s.must("a\nb\nc\nd\ne\n", "produce t")

	s.says("topic add-partitions t -n 1 --dry-run", 0, "t could have 2 partitions")
	s.says("topic add-partitions t -n 2", 0, "t has 3 partitions")
	s.says("topic add-partitions t --to 4 --replicas 1", 0, "t has 4 partitions")
	s.says("topic add-partitions t --to 5 --replicas 9", 1, "broker 9", "INVALID_REPLICA_ASSIGNMENT")
	s.says("topic add-partitions t --to 3", 1, "would not be an increase")
	s.says("topic add-partitions none -n 1", 3, "weir topic list")

	s.says("topic alter t -c retention.ms=5000 -c cleanup.policy=delete --dry-run", 0, "t could be altered")
	s.says("topic alter t -c retention.ms=5000000 -c segment.ms=9", 0, "t altered")
	s.says("topic describe t -c", 0, "retention.ms 5000000 topic", "segment.ms 9 topic", "segment.bytes 1073741824 default")
	s.says("topic alter t --delete segment.ms", 0, "t altered")
	s.says("topic describe t -c", 0, "segment.ms 604800000 default")
	s.says("topic alter t -c flush.ms=1", 1, "has no effect")
	s.says("topic alter t none -c retention.ms=6000000", 4, "t altered", "1 of 2 topics failed")

	s.says("topic offsets t", 0, "t 0 0 5 5", "t 3 0 0 0")
	s.says("topic offsets t -p 0 --at 2001-01-01T00:00:00Z", 0, "t 0 0 5 5 0 20")
	s.says("topic offsets none", 3, "UNKNOWN_TOPIC_OR_PARTITION")
	s.says("topic trim t --to 2 -p 0", 2, "add --yes")
	s.says("topic trim t --to 2 -p 0 --dry-run", 0, "0 0 2 2 would be trimmed")
	s.says("topic trim t --to 2 -y", 0, "0 0 2 2 trimmed", "1 0 0 0 nothing to do")
	s.says("topic trim t --to end -p 9 -y", 3, "no partition 9")
	got := decode[struct {
		Executed bool
		Trims    []struct{ Partition, From, To, Records int64 }
	}](t, s.must("", "topic trim t --to -1 -p 0 -y -o json"))
	if !got.Executed || len(got.Trims) != 1 || got.Trims[0].To != 4 || got.Trims[0].Records != 2 {
		t.Errorf("trim to the last record: %+v", got)
	}
	if out := s.must("", "consume t -e -o start -f %v,"); out != "e," {
		t.Errorf("left is %q, want the last record", out)
	}
}

// TestRetentionVerb: records go for their age after a config was set.
func TestRetentionVerb(t *testing.T) {
	s := startNode(t)
	s.must("", "topic create t -p 1")
	s.must("a\nb\nc\n", "produce t")
	s.must("", "topic alter t -c retention.ms=1")
	deadline := time.Now().Add(30 * time.Second)
	for {
		out := strings.Join(strings.Fields(s.must("", "topic offsets t")), " ")
		if strings.Contains(out, "t 0 3 3 0") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("records are not removed for their age: %s", out)
		}
	}
}
