package fsm_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/fsm"
)

func showChanges(changes []fsm.ConfigChange) string {
	value := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	var out []string
	for _, c := range changes {
		out = append(out, c.Name+": "+value(c.Was)+" > "+value(c.Now))
	}
	return strings.Join(out, "; ")
}

func TestPlanConfigs(t *testing.T) {
	topic := &fsm.Topic{Configs: map[string]string{"retention.ms": "5", "brand.new": "x"}}
	set, del, app, sub := fsm.SetConfig, fsm.DeleteConfig, fsm.AppendConfig, fsm.SubtractConfig
	for _, c := range []struct {
		name string
		ops  []fsm.ConfigOp
		want string
		err  error
	}{
		{"nothing", nil, "", nil},
		{"set a new one", []fsm.ConfigOp{{"segment.ms", set, "7"}}, "segment.ms: - > 7", nil},
		{"set over another", []fsm.ConfigOp{{"retention.ms", set, "6"}}, "retention.ms: 5 > 6", nil},
		{"set the same", []fsm.ConfigOp{{"retention.ms", set, "5"}}, "", nil},
		{"delete", []fsm.ConfigOp{{"retention.ms", del, ""}}, "retention.ms: 5 > -", nil},
		{"delete what is not set", []fsm.ConfigOp{{"segment.ms", del, ""}}, "", nil},
		{"delete what has no effect", []fsm.ConfigOp{{"flush.ms", del, ""}}, "", nil},
		{"delete what another version stored", []fsm.ConfigOp{{"brand.new", del, ""}}, "brand.new: x > -", nil},
		{"delete a misspelt one", []fsm.ConfigOp{{"retention.mss", del, ""}}, "", fsm.ErrUnknownConfig},
		{"two", []fsm.ConfigOp{{"retention.ms", del, ""}, {"segment.ms", set, "7"}}, "retention.ms: 5 > -; segment.ms: - > 7", nil},
		{"one twice", []fsm.ConfigOp{{"segment.ms", del, ""}, {"segment.ms", set, "7"}}, "", fsm.ErrInvalidConfig},
		{"append what is there", []fsm.ConfigOp{{"cleanup.policy", app, "delete"}}, "cleanup.policy: - > delete", nil},
		{"append", []fsm.ConfigOp{{"cleanup.policy", app, "compact"}}, "cleanup.policy: - > delete,compact", nil},
		{"append what is no policy", []fsm.ConfigOp{{"cleanup.policy", app, "erase"}}, "", fsm.ErrInvalidConfig},
		{"subtract", []fsm.ConfigOp{{"cleanup.policy", sub, "delete"}}, "cleanup.policy: - > ", nil},
		{"subtract what is not there", []fsm.ConfigOp{{"cleanup.policy", sub, "compact"}}, "cleanup.policy: - > delete", nil},
		{"append to a number", []fsm.ConfigOp{{"segment.ms", app, "7"}}, "", fsm.ErrInvalidConfig},
		{"set what has no effect", []fsm.ConfigOp{{"flush.ms", set, "7"}}, "", fsm.ErrNoEffect},
		{"set a bad value", []fsm.ConfigOp{{"segment.ms", set, "x"}}, "", fsm.ErrInvalidConfig},
		{"set an unknown one", []fsm.ConfigOp{{"brand.new", set, "y"}}, "", fsm.ErrUnknownConfig},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := topic.PlanConfigs(c.ops)
			if !errors.Is(err, c.err) || showChanges(got) != c.want {
				t.Errorf("got %q, %v; want %q, %v", showChanges(got), err, c.want, c.err)
			}
		})
	}
}

func TestPlanReplacement(t *testing.T) {
	topic := &fsm.Topic{Configs: map[string]string{"retention.ms": "5", "segment.ms": "7", "brand.new": "x"}}
	got, err := topic.PlanReplacement([][2]string{{"retention.bytes", "9"}, {"segment.ms", "7"}})
	if want := "retention.bytes: - > 9; brand.new: x > -; retention.ms: 5 > -"; err != nil || showChanges(got) != want {
		t.Errorf("got %q, %v; want %q", showChanges(got), err, want)
	}
	if _, err := topic.PlanReplacement([][2]string{{"flush.ms", "9"}}); !errors.Is(err, fsm.ErrNoEffect) {
		t.Errorf("without effect: got %v, want ErrNoEffect", err)
	}
	if c, err := fsm.ParseTopicConfigs([][2]string{{"cleanup.policy", ""}}); err != nil || !c.KeepAll {
		t.Errorf("an empty cleanup.policy: %+v, %v; want all to be kept", c, err)
	}
}
