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
	})
	want := fsm.TopicConfig{MaxMessageBytes: 2000, SegmentBytes: 1 << 20, MinISR: 2, AppendTime: true, BeforeMax: 5, AfterMax: 6,
		RetentionMs: -1, RetentionBytes: 1000, SegmentMs: 7, Durability: fsm.DurabilityFsync}
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
		{"cleanup.policy", "compact", fsm.ErrNoEffect, "allowed is delete"},
		{"cleanup.policy", "erase", fsm.ErrInvalidConfig, "allowed is delete"},
		{"cleanup.policy", "compact,delete", fsm.ErrNoEffect, ""},
		{"compression.type", "zstd", fsm.ErrNoEffect, "allowed is producer"},
		{"retention.ms", "-2", fsm.ErrInvalidConfig, "allowed is -1 for ever"},
		{"retention.bytes", "1 GB", fsm.ErrInvalidConfig, ""},
		{"unclean.leader.election.enable", "true", fsm.ErrNoEffect, ""},
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
