package clients

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/integration/cluster"
)

// TestReadmeNamesWhatIsServed compares README's status table with what a real
// node answers to ApiVersions: every API it serves, in the versions it serves.
func TestReadmeNamesWhatIsServed(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin, err := cluster.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(bin, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	cl, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	kafkas := strings.NewReplacer("ID", "Id", "AlterPartitionAssignments", "AlterPartitionReassignments") // where kmsg has names of its own
	served := map[string]bool{}
	for _, k := range resp.ApiKeys {
		least := k.MinVersion
		if k.ApiKey == 0 {
			least = 3 // advertised from 0 for the sake of old librdkafka, and refused below 3
		}
		versions := fmt.Sprintf("%d–%d", least, k.MaxVersion)
		if least == k.MaxVersion {
			versions = fmt.Sprint(least)
		}
		row := fmt.Sprintf("| %d | %s | %s |", k.ApiKey, kafkas.Replace(kmsg.NameForKey(k.ApiKey)), versions)
		served[row] = true
		if !strings.Contains(string(readme), row) {
			t.Errorf("README has no row %q", row)
		}
	}
	if len(served) < 10 {
		t.Fatalf("the node names only %d APIs", len(served))
	}
	for _, line := range strings.Split(string(readme), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(line, "| ") || !strings.ContainsAny(cells[1], "0123456789") {
			continue
		}
		if row := strings.Join(cells[:4], "|") + "|"; !served[row] {
			t.Errorf("README has the row %q, which the node does not serve", row)
		}
	}
}
