package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// forgeSnapshot makes a snapshot of the metadata up to an index that can not be read: what
// describes it is whole, and its checksum is another.
func forgeSnapshot(t *testing.T, n *Node, index int) {
	t.Helper()
	id := fmt.Sprintf("2-%d-1700000000000", index)
	dir := filepath.Join(n.Data, "raft", "snapshots", id)
	meta := fmt.Sprintf(`{"Version":1,"ID":%q,"Index":%d,"Term":2,"Peers":"","Configuration":{"Servers":[]},"ConfigurationIndex":1,"Size":8,"CRC":"AAAAAAAAAAA="}`, id, index)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "meta.json"), []byte(meta), 0o600),
		os.WriteFile(filepath.Join(dir, "state.bin"), []byte("nonsense"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotsAreDamaged starts a node all of whose snapshots are damaged: from its log where
// that has everything; otherwise it ends and says what to do.
func TestSnapshotsAreDamaged(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := startNodes(ctx, t, 1)
	n := c.Node(1)
	cl, err := c.Client(kgo.DefaultProduceTopic("t"), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	writeRecords(ctx, t, cl, 0, 10)
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	forgeSnapshot(t, n, 2)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	writeRecords(ctx, t, cl, 10, 20)
	said, err := os.ReadFile(n.Log)
	if err != nil || !strings.Contains(string(said), "this node starts from its log") {
		t.Errorf("it does not say what it started from (%v)", err)
	}
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	forgeSnapshot(t, n, 1_000_000)
	if err := c.StartNode(n); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, "the node ends", func() error {
		if n.PID() != 0 {
			return errors.New("it runs")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	said, err = os.ReadFile(n.Log)
	for _, text := range []string{"has a gap", "2-1000000-1700000000000", "weir recover --data FOLDER --keep IDS"} {
		if err != nil || !strings.Contains(string(said), text) {
			t.Errorf("its last words lack %q (%v)", text, err)
		}
	}
}
