package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestNormalise is the golden table of the argv normaliser: each row is typed
// as users of some other tool would, and must come out in the one order the
// flag library understands.
func TestNormalise(t *testing.T) {
	rows := []struct{ typed, want string }{
		{"topic create foo -p 3", "topic create -p 3 -- foo"},
		{"topic create -p 3 foo", "topic create -p 3 -- foo"},
		{"topic create foo bar -p3 -r1", "topic create -p 3 -r 1 -- foo bar"},
		{"topic create foo --partitions=3 -c a=1,2 -c b=2", "topic create --partitions=3 -c a=1,2 -c b=2 -- foo"},
		{"-b h:1 topic list", "topic list -b h:1"},
		{"topic -b h:1 list -o json", "topic list -b h:1 -o json"},
		{"topic ls", "topic ls"},
		{"topic list --output json", "topic list --output json"},
		{"topic describe foo -b h:1", "topic describe -b h:1 -- foo"},
		{"topic delete foo --yes -b h:1", "topic delete --yes -b h:1 -- foo"},
		{"topic delete -y foo", "topic delete -y -- foo"},
		{"partition move foo --to 1,2,3 -w", "partition move --to 1,2,3 -w -- foo"},
		{"partition move foo -p 0:1,2 -p 1:2,1", "partition move -p 0:1,2 -p 1:2,1 -- foo"},
		{"produce foo", "produce -- foo"},
		{"produce foo -z zstd --acks all", "produce -z zstd --acks all -- foo"},
		{"produce -p 2 foo -H a:b -H c:d", "produce -p 2 -H a:b -H c:d -- foo"},
		{"consume foo -e", "consume -e -- foo"},
		{"consume foo -o -3 -e", "consume -o -3 -e -- foo"},
		{"consume -e foo -f %v\\n", "consume -e -f %v\\n -- foo"},
		{"consume foo -en5", "consume -e -n 5 -- foo"},
		{"consume -- -odd-topic-", "consume -- -odd-topic-"},
		{"cluster info -b a:1,b:2", "cluster info -b a:1,b:2"},
		{"cluster quorum -b a:1", "cluster quorum -b a:1"},
		{"cluster quorum add 4 --wait 1m", "cluster quorum add --wait 1m -- 4"},
		{"cluster quorum replace 2 --with 4 -y", "cluster quorum replace --with 4 -y -- 2"},
		{"cluster remove 4 --yes", "cluster remove --yes -- 4"},
		{"bench produce -n 10 -s 100", "bench produce -n 10 -s 100"},
		{"bench consume --topic t", "bench consume --topic t"},
		{"bench commit --groups 2 -p5 -d 1s", "bench commit --groups 2 -p 5 -d 1s"},
		{"bench e2e -n 10 --acks 1", "bench e2e -n 10 --acks 1"},
		{"start --data d --join a:1,b:1 -c x=1", "start --data d --join a:1,b:1 -c x=1"},
		{"demo --once", "demo --once"},
		{"log dump dir --records", "log dump --records -- dir"},
		{"version", "version"},
		{"--help", "--help"},
		{"topic --help", "topic --help"},
		{"topic create --help", "topic create --help"},
		{"topik list", "-- topik list"},
		{"topic creat foo", "topic -- creat foo"},
		{"topic create foo --nope 3", "topic create --nope -- foo 3"},
		{"produce create", "produce -- create"},
		{"topic create foo -p", "topic create -p -- foo"},
	}
	for _, r := range rows {
		app := newApp(strings.NewReader(""), io.Discard, io.Discard)
		got := normalise(app, strings.Fields(r.typed))
		if want := strings.Fields(r.want); !slices.Equal(got, want) {
			t.Errorf("%q\n got %q\nwant %q", r.typed, got, want)
		}
	}
}

// TestEveryCommandTakesFlagsLast writes each flag of each command before and
// after a positional and expects the same vector.
func TestEveryCommandTakesFlagsLast(t *testing.T) {
	app := newApp(strings.NewReader(""), io.Discard, io.Discard)
	seen := 0
	walk(nil, app.Commands, func(path []string, c *cli.Command) {
		for name, takes := range tableOf(c.Flags) {
			seen++
			flag := []string{"--" + name}
			if len(name) == 1 {
				flag = []string{"-" + name}
			}
			if takes {
				flag = append(flag, "value")
			}
			first := normalise(app, slices.Concat(path, flag, []string{"word"}))
			last := normalise(app, slices.Concat(path, []string{"word"}, flag))
			want := slices.Concat(path, flag, []string{"--", "word"})
			if !slices.Equal(first, want) || !slices.Equal(last, want) {
				t.Errorf("%v %v\nfirst %q\n last %q\n want %q", path, flag, first, last, want)
			}
		}
	})
	if seen < 40 {
		t.Fatalf("only %d flags were tried", seen)
	}
}

func walk(path []string, cmds []*cli.Command, visit func([]string, *cli.Command)) {
	for _, c := range cmds {
		p := append(slices.Clone(path), c.Name)
		if len(c.Subcommands) > 0 {
			walk(p, c.Subcommands, visit)
		} else {
			visit(p, c)
		}
	}
}
