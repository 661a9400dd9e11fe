package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/weirmq/weir/broker"
)

// TestRefusals runs command lines that are wrong and reads what the user reads.
func TestRefusals(t *testing.T) {
	rows := []struct {
		args, says string
		code       int
	}{
		{"topik list", `unknown command "topik": did you mean "topic"?; see weir --help`, 2},
		{"topic creat x", `unknown command "creat": did you mean "create"?; see weir topic --help`, 2},
		{"topic create", "topic create needs a name", 2},
		{"topic create x --partitons 3", "unknown flag -partitons; did you mean --partitions?", 2},
		{"topic create x -c nokey", `-c "nokey" is not KEY=VALUE`, 2},
		{"topic delete x", "add --yes to go on", 2},
		{"topic alter", "topic alter needs a name", 2},
		{"topic alter x", "topic alter needs a change", 2},
		{"topic alter x -c nokey", `-c "nokey" is not KEY=VALUE`, 2},
		{"topic alter x --append nokey", `--append "nokey" is not KEY=VALUE`, 2},
		{"topic add-partitions x", "needs either -n N", 2},
		{"topic add-partitions x -n 1 --to 3", "needs either -n N", 2},
		{"topic add-partitions x -n 1 --replicas 1,b", `"b" is not the id of a node`, 2},
		{"topic offsets", "topic offsets needs a name", 2},
		{"topic offsets x --at yesterday", `--at "yesterday" is not a time`, 2},
		{"topic trim x y --to end", "topic trim needs one name", 2},
		{"topic trim x --to nowhere", `--to "nowhere" is not a place`, 2},
		{"partition move x", "partition move needs to know where to", 2},
		{"partition move --to 1", "partition move needs a topic", 2},
		{"partition move x --to 1,b", `"b" is not the id of a node`, 2},
		{"partition move x -p 1", `-p "1" is not PARTITION:ID,…`, 2},
		{"partition move x -p 0:1 --to 2", "goes with one topic, and without --to", 2},
		{"partition move x -r -1", "at least one replica", 2},
		{"produce", "produce needs one topic", 2},
		{"produce a b", "produce needs one topic", 2},
		{"produce x --acks 2 -b 127.0.0.1:1", `unknown acks "2"`, 2},
		{"produce x -z rar -b 127.0.0.1:1", `unknown compression "rar"`, 2},
		{"consume x -o zz", `-o "zz" is not an offset`, 2},
		{"consume x -f %", "is not a record format", 2},
		{"topic list -b 127.0.0.1:1", "nobody listens at 127.0.0.1:1", 5},
		{"start extra", `start takes no argument "extra"`, 2},
		{"start -c num.partition=3", "did you mean num.partitions?", 2},
		{"start -c num.partitions", "is not KEY=VALUE", 2},
		{"start --listen nonsense", "is not host:port", 2},
		{"start --log-level loud", `--log-level "loud" is unknown`, 2},
		{"log dump", "log dump needs a partition folder", 2},
		{"recover extra", `recover takes no argument "extra"`, 2},
		{"recover --keep 1,b", `"b" is not the id of a node`, 2},
		{"recover --data no-such-folder", "holds no node of a cluster", 1},
		{"log dump no-such-folder", "no such file", 3},
	}
	for _, r := range rows {
		t.Run(r.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), strings.Fields(r.args), strings.NewReader(""), &stdout, &stderr)
			if code != r.code || !strings.Contains(stderr.String(), r.says) {
				t.Errorf("exit code %d, want %d; stderr %q lacks %q", code, r.code, stderr.String(), r.says)
			}
			if strings.Count(strings.TrimSpace(stderr.String()), "\n") > 0 {
				t.Errorf("more than one line: %q", stderr.String())
			}
		})
	}
}

// TestConfigurationPage wants every key that has an effect on the page that
// error messages point to.
func TestConfigurationPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range broker.Keys() {
		if !strings.Contains(string(page), "| `"+k.Name+"` |") {
			t.Errorf("docs/configuration.md has no row for %s (%s)", k.Name, k.Doc)
		}
	}
}
