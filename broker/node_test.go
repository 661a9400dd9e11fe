package broker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage/vfs"
)

func TestSingleNode(t *testing.T) {
	c := newCluster(t, 1)
	c.topic("t", 2, 1)
	want := numbered(0, 20)
	c.produce("t", want...)
	if got := c.consume("t", len(want)); !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func TestRestartKeepsRecords(t *testing.T) {
	for name, end := range map[string]func(*cluster, int){"clean": (*cluster).stop, "unclean": (*cluster).kill} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.topic("t", 1, 1)
			want := numbered(0, 5)
			c.produce("t", want...)
			cluster := c.nodes[0].ClusterID()
			end(c, 0)
			_, err := os.Stat(filepath.Join(c.configs[0].DataDir, ".clean-shutdown"))
			if clean := err == nil; clean != (name == "clean") {
				t.Errorf("mark of a clean stop: %v", clean)
			}
			c.start(0)
			if t.Failed() {
				return
			}
			if got := c.nodes[0].ClusterID(); got != cluster {
				t.Errorf("the cluster id changed from %s to %s", cluster, got)
			}
			c.produce("t", "last")
			if got := c.consume("t", 6); !slices.Equal(got, append(want, "last")) {
				t.Errorf("read %q after the restart", got)
			}
		})
	}
}

func TestOpenErrorsSayWhatToDo(t *testing.T) {
	c := newCluster(t, 1)
	open := func(change func(*Config)) error {
		cfg := c.configs[0]
		cfg.DataDir = filepath.Join(t.TempDir(), "d")
		free := freeAddresses(t, 2)
		cfg.ClientListen, cfg.PeerListen = free[0], free[1]
		change(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		n, err := Open(ctx, cfg)
		if err == nil {
			n.Abort()
		}
		return err
	}
	notFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.MkdirAll(damaged, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, metaFile), []byte("version=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change func(*Config)
		want   string
	}{
		"client port":   {func(cfg *Config) { cfg.ClientListen = c.configs[0].ClientListen }, "choose another port"},
		"peer port":     {func(cfg *Config) { cfg.PeerListen = c.configs[0].PeerListen }, "choose another port"},
		"admin port":    {func(cfg *Config) { cfg.AdminListen = c.configs[0].ClientListen }, "choose another port"},
		"folder in use": {func(cfg *Config) { cfg.DataDir = c.configs[0].DataDir }, "stop that one or choose another folder"},
		"not a folder":  {func(cfg *Config) { cfg.DataDir = notFolder }, "choose a folder"},
		"damaged meta":  {func(cfg *Config) { cfg.DataDir = damaged }, "restore it from a copy"},
		"bad address":   {func(cfg *Config) { cfg.ClientListen = "192.0.2.1:9092" }, "does not belong to this machine"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := open(tc.change); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Open = %v, want an error that says %q", err, tc.want)
			}
		})
	}
}

func TestLostMetadataIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	c.topic("t", 1, 1)
	c.produce("t", "a")
	c.stop(0)
	cfg := c.configs[0]
	fsys := vfs.OS()
	m, _, err := readMeta(fsys, cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	m.reconciled += 1000
	if err := m.write(fsys, cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := Open(ctx, cfg)
	if err == nil {
		n.Abort()
		t.Fatal("a node whose metadata went back started")
	}
	if !strings.Contains(err.Error(), "metadata was lost") {
		t.Errorf("Open = %v, want an error that says that metadata was lost", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "t-0")); err != nil {
		t.Errorf("the replica was touched: %v", err)
	}
}

func TestUnknownFolderIsSetAside(t *testing.T) {
	c := newCluster(t, 1)
	id := c.topic("t", 1, 1)
	c.produce("t", "a")
	c.stop(0)
	dir := c.configs[0].DataDir
	if err := os.CopyFS(filepath.Join(dir, "other-0"), os.DirFS(filepath.Join(dir, "t-0"))); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(dir, "other-0", "partition.metadata")
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	_ = id
	if err := os.WriteFile(meta, []byte(strings.Replace(string(text), "topic_id: ", "topic_id: A", 1)[:len(text)]), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(0)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	stray := slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "other-0") && strings.HasSuffix(e.Name(), "-stray")
	})
	if !stray {
		t.Errorf("the unknown replica was not set aside: %v", entries)
	}
	if got := c.consume("t", 1); got[0] != "a" {
		t.Errorf("read %q", got)
	}
}

func TestDeleteAndRecreate(t *testing.T) {
	c := newCluster(t, 1)
	first := c.topic("t", 1, 1)
	c.produce("t", "old")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := kadm.NewClient(c.client()).DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	second := c.topic("t", 1, 1)
	if first == second {
		t.Fatal("the new topic has the id of the old one")
	}
	c.produce("t", "new")
	if got := c.consume("t", 1); !slices.Equal(got, []string{"new"}) {
		t.Errorf("read %q, want only the new record", got)
	}
	n := c.nodes[0]
	c.until("the deletion is confirmed", func() bool {
		_, buried := n.controller.Image().Tombstone(first)
		return !buried
	})
	if n.env.replicas.Get(fsm.TopicPartition{Topic: first}) != nil {
		t.Error("the deleted replica is still served")
	}
}

// TestStartIsFast: an empty folder to the first Metadata answer in under 100 ms, if
// not at once, then once the machine is less busy.
func TestStartIsFast(t *testing.T) {
	best, limit := time.Hour, time.Now().Add(patience)
	for best > 100*time.Millisecond && time.Now().Before(limit) {
		cfg := DefaultConfig()
		cfg.DataDir = t.TempDir()
		free := freeAddresses(t, 2)
		cfg.ClientListen, cfg.PeerListen, cfg.AdminListen = free[0], free[1], "none"
		began := time.Now()
		n, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		md, err := kadm.NewClient(cl).BrokerMetadata(t.Context())
		took := time.Since(began)
		cl.Close()
		n.Abort()
		if err != nil || len(md.Brokers) != 1 {
			t.Fatalf("metadata names %d brokers, error %v", len(md.Brokers), err)
		}
		best = min(best, took)
	}
	t.Logf("first metadata answer after %v", best)
	if best > 100*time.Millisecond {
		t.Errorf("the first metadata answer took %v, want under 100ms", best)
	}
}
