package fsm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/fsm"
)

func TestParseTopicConfigs(t *testing.T) {
	c, err := fsm.ParseTopicConfigs([][2]string{
		{"max.message.bytes", "2000"}, {"segment.bytes", " 1048576 "}, {"min.insync.replicas", "2"},
		{"message.timestamp.type", "LogAppendTime"}, {"message.timestamp.before.max.ms", "5"}, {"message.timestamp.after.max.ms", "6"},
		{"compression.type", "producer"}, {"cleanup.policy", "delete"}, {"unclean.leader.election.enable", "false"},
		{"retention.ms", "-1"}, {"retention.bytes", "1000"}, {"segment.ms", "7"}, {"weir.durability", "fsync"},
		{"min.cleanable.dirty.ratio", "0.01"}, {"min.compaction.lag.ms", "8"}, {"max.compaction.lag.ms", "9"}, {"delete.retention.ms", "10"},
	})
	want := fsm.TopicConfig{MaxMessageBytes: 2000, SegmentBytes: 1 << 20, MinISR: 2, AppendTime: true, BeforeMax: 5, AfterMax: 6,
		RetentionMs: -1, RetentionBytes: 1000, SegmentMs: 7, Durability: fsm.DurabilityFsync,
		MinCleanable: 0.01, MinLagMs: 8, MaxLagMs: 9, DeleteRetentionMs: 10}
	if err != nil || c != want {
		t.Errorf("got %+v, %v; want %+v", c, err, want)
	}
}

func TestRefusedTopicConfigs(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        error
		says        string
	}{
		{"cleanup.policy", "erase", fsm.ErrInvalidConfig, "allowed is delete"},
		{"cleanup.policy", "compact,erase", fsm.ErrInvalidConfig, ""},
		{"cleanup.policy", "compact,compact", fsm.ErrInvalidConfig, ""},
		{"min.cleanable.dirty.ratio", "1.1", fsm.ErrInvalidConfig, "0 to 1"},
		{"min.cleanable.dirty.ratio", "NaN", fsm.ErrInvalidConfig, ""},
		{"min.compaction.lag.ms", "-1", fsm.ErrInvalidConfig, ""},
		{"max.compaction.lag.ms", "0", fsm.ErrInvalidConfig, ""},
		{"delete.retention.ms", "-1", fsm.ErrInvalidConfig, ""},
		{"compression.type", "zstd", fsm.ErrNoEffect, "allowed is producer"},
		{"retention.ms", "-2", fsm.ErrInvalidConfig, "allowed is -1 for ever"},
		{"retention.bytes", "1 GB", fsm.ErrInvalidConfig, ""},
		{"unclean.leader.election.enable", "yes", fsm.ErrInvalidConfig, "true or false"},
		{"segment.ms", "0", fsm.ErrInvalidConfig, "1 or more"},
		{"flush.ms", "1000", fsm.ErrNoEffect, "leave it out"},
		{"max.message.bytes", "-1", fsm.ErrInvalidConfig, "0 to 2147483647"},
		{"max.message.bytes", "2147483648", fsm.ErrInvalidConfig, ""},
		{"segment.bytes", "1048575", fsm.ErrInvalidConfig, ""},
		{"segment.bytes", "1 GiB", fsm.ErrInvalidConfig, ""},
		{"min.insync.replicas", "0", fsm.ErrInvalidConfig, ""},
		{"message.timestamp.type", "createtime", fsm.ErrInvalidConfig, "CreateTime or LogAppendTime"},
		{"message.timestamp.after.max.ms", "-1", fsm.ErrInvalidConfig, ""},
		{"weir.durability", "interval", fsm.ErrInvalidConfig, "replicated or fsync"},
		{"segment.byte", "1", fsm.ErrUnknownConfig, "did you mean segment.bytes?"},
		{"retention", "1", fsm.ErrUnknownConfig, "did you mean retention.ms?"},
		{"min.insync.replica", "1", fsm.ErrUnknownConfig, "did you mean min.insync.replicas?"},
		{"segment.mss", "1", fsm.ErrUnknownConfig, "did you mean segment.ms?"},
		{"x", "1", fsm.ErrUnknownConfig, `config "x"`},
		{"", "1", fsm.ErrUnknownConfig, ""},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			_, err := fsm.ParseTopicConfigs([][2]string{{c.name, c.value}})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.says)
			}
		})
	}
	if _, err := fsm.ParseTopicConfigs([][2]string{{"retention.ms", "-1"}, {"retention.ms", "-1"}}); !errors.Is(err, fsm.ErrInvalidConfig) {
		t.Errorf("given twice: got %v, want ErrInvalidConfig", err)
	}
}

// TestCleanupPolicies reads the policy in all its forms.
func TestCleanupPolicies(t *testing.T) {
	for value, want := range map[string][2]bool{
		"": {true, false}, " ": {true, false}, "delete": {false, false}, "compact": {true, true},
		"compact,delete": {false, true}, "delete,compact": {false, true}, " delete , compact ": {false, true}, "[]": {false, false},
	} {
		c, err := fsm.ParseTopicConfigs([][2]string{{fsm.CleanupPolicy, value}})
		if value == "[]" {
			if !errors.Is(err, fsm.ErrInvalidConfig) {
				t.Errorf("%q: got %v", value, err)
			}
			continue
		}
		if err != nil || c.KeepAll != want[0] || c.Compact != want[1] {
			t.Errorf("%q: got keep all %v, compact %v (%v), want %v", value, c.KeepAll, c.Compact, err, want)
		}
	}
	_, err := fsm.ParseTopicConfigs([][2]string{{"min.compaction.lag.ms", "10"}, {"max.compaction.lag.ms", "9"}})
	if !errors.Is(err, fsm.ErrInvalidConfig) || !strings.Contains(err.Error(), "above max.compaction.lag.ms") {
		t.Errorf("a lag that is above the greatest: got %v", err)
	}
}

// TestTopicConfigTable checks the table against itself: each default is accepted
// and is what a topic without configs has.
func TestTopicConfigTable(t *testing.T) {
	rows := fsm.TopicConfigs()
	if !slices.IsSortedFunc(rows, func(a, b fsm.ConfigRow) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the table is not in order of name")
	}
	for _, r := range rows {
		if r.Doc == "" || r.Values == "" {
			t.Errorf("%s lacks its documentation", r.Name)
		}
		if r.Name == fsm.MinInsyncReplicas {
			continue // its default is no number
		}
		c, err := fsm.ParseTopicConfigs([][2]string{{r.Name, r.Default}})
		if err != nil || c != fsm.DefaultTopicConfig() {
			t.Errorf("%s=%s: got %+v, %v; want the defaults", r.Name, r.Default, c, err)
		}
	}
}

func TestCheckTopicName(t *testing.T) {
	for _, name := range []string{"a", "A.b_c-9", "...", strings.Repeat("x", fsm.MaxTopicName)} {
		if err := fsm.CheckTopicName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", "../x", "a b", "a\x00", "é", strings.Repeat("x", fsm.MaxTopicName+1)} {
		if err := fsm.CheckTopicName(name); err == nil {
			t.Errorf("%q: accepted", name)
		}
	}
}

// TestStoredConfigOfAnotherVersion: a config that this version would refuse, but
// that is in the log, is kept and does not stop anything.
func TestStoredConfigOfAnotherVersion(t *testing.T) {
	im := sampleImage(t)
	np := fsm.NewPartition{Replicas: []fsm.BrokerID{1}, ISR: []fsm.BrokerID{1}, Leader: 1}
	im, r := fsm.Apply(im, 100, fsm.CreateTopic{ID: topicID("later"), Name: "later", Partitions: []fsm.NewPartition{np},
		Configs: [][2]string{{"retention.ms", "1000"}, {"brand.new", "x"}, {"segment.bytes", "2000000"}}})
	topic, ok := im.TopicByName("later")
	if r.Err != nil || !ok || topic.Configs["retention.ms"] != "1000" || topic.Configs["brand.new"] != "x" || topic.Config.SegmentBytes != 2000000 {
		t.Errorf("got %+v, topic %+v", r, topic)
	}
}
