package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirmq/weir/integration/cluster"
)

// java is Kafka's own tools: the folder of their jars.
type java struct{ libs string }

func findJava(t *testing.T) java {
	t.Helper()
	lookPath(t, "java")
	libs := os.Getenv("KAFKA_LIBS")
	if libs == "" {
		t.Skip("KAFKA_LIBS names no folder with Kafka's jars")
	}
	return java{libs}
}

// call is the command line of a tool; class is relative to org.apache.kafka.tools.
func (j java) call(class string, args ...string) []string {
	return append([]string{"java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(j.libs, "*"), "org.apache.kafka.tools." + class}, args...)
}

// run runs a tool to its end and returns what it printed.
func (j java) run(ctx context.Context, t *testing.T, class string, args ...string) string {
	t.Helper()
	argv := j.call(class, args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s%s", class, strings.Join(args, " "), err, out.String(), stderr.String())
	}
	return out.String()
}

// want runs a tool and wants its output to match every pattern.
func (j java) want(ctx context.Context, t *testing.T, patterns []string, class string, args ...string) {
	t.Helper()
	out := j.run(ctx, t, class, args...)
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("%s %s printed nothing like %q:\n%s", class, strings.Join(args, " "), p, out)
		}
	}
}

// verifiable are VerifiableProducer and VerifiableConsumer.
func (j java) verifiable(t *testing.T, protocol string) client {
	t.Helper()
	dir := t.TempDir()
	producer := func(codec string) string {
		path := filepath.Join(dir, codec+".properties")
		text := "retries=2147483647\ncompression.type=" + codec + "\n" // the tool's own default is not to retry
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return client{
		codecs: []string{"gzip", "snappy", "lz4", "zstd"}, idempotent: true, consumer: protocol == "CONSUMER",
		produce: func(brokers, topic, codec string, first, count int) []string {
			return j.call("VerifiableProducer", "--bootstrap-server", brokers, "--topic", topic, "--max-messages", strconv.Itoa(count),
				"--value-prefix", strconv.Itoa(first), "--repeating-keys", "100", "--command-config", producer(codec))
		},
		group: func(brokers, topic, group string) []string {
			args := []string{"--bootstrap-server", brokers, "--topic", topic, "--group-id", group, "--group-protocol", protocol, "--verbose"}
			if protocol == "CLASSIC" {
				args = append(args, "--session-timeout", "10000")
			}
			return j.call("VerifiableConsumer", args...)
		},
		parse:     parseVerifiable,
		stopCodes: []int{143},
	}
}

// parseVerifiable turns what the two tools print into events.
func parseVerifiable(line []byte) ([]event, error) {
	var e struct {
		Name      string `json:"name"`
		Value     string `json:"value"`
		Partition int32  `json:"partition"`
		Offset    int64  `json:"offset"`
		Message   string `json:"message"`
		Success   *bool  `json:"success"`
		Error     string `json:"error"`
		Timestamp int64  `json:"timestamp"`
		// Partitions is a list of topics and partitions in some events, and a number in others.
		Partitions json.RawMessage `json:"partitions"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("the tool printed %q: %w", line, err)
	}
	switch e.Name {
	case "producer_send_success":
		n, err := number(e.Value)
		return []event{{Step: "acked", N: n}}, err
	case "producer_send_error":
		return []event{{Step: "error", Error: e.Message}}, nil
	case "partitions_assigned", "partitions_revoked":
		var list []struct {
			Partition int32 `json:"partition"`
		}
		err := json.Unmarshal(e.Partitions, &list)
		move := event{Step: strings.TrimPrefix(e.Name, "partitions_"), at: e.Timestamp}
		for _, p := range list {
			move.partitions = append(move.partitions, p.Partition)
		}
		return []event{move}, err
	case "offsets_committed":
		if e.Success != nil && !*e.Success {
			return []event{{Step: "not committed", Error: e.Error}}, nil
		}
	case "record_data":
		n, err := number(e.Value)
		return []event{{Step: "read", Partition: e.Partition, Offset: e.Offset, N: n}}, err
	}
	return nil, nil
}

// TestJavaClassic travels with Kafka's Java clients and the classic group protocol.
func TestJavaClassic(t *testing.T) { travel(t, findJava(t).verifiable(t, "CLASSIC")) }

// TestJavaConsumerProtocol travels with Kafka's Java clients and the consumer group protocol.
func TestJavaConsumerProtocol(t *testing.T) { travel(t, findJava(t).verifiable(t, "CONSUMER")) }

// TestJavaCompatibility runs Kafka's own gate for clients: what it is told to
// be supported must work, and what it is told not to be must not.
func TestJavaCompatibility(t *testing.T) {
	j := findJava(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := startCluster(ctx, t)
	brokers := strings.Join(c.Brokers(), ",")
	j.run(ctx, t, "TopicCommand", "--bootstrap-server", brokers, "--create", "--topic", "gate", "--partitions", "1", "--replication-factor", "3")
	j.want(ctx, t, []string{`SUCCESS`}, "ClientCompatibilityTest", "--bootstrap-server", brokers, "--topic", "gate", "--num-cluster-nodes", "3",
		"--offsets-for-times-supported", "True", "--cluster-id-supported", "True", "--expect-record-too-large-exception", "False",
		"--create-topics-supported", "True", "--describe-acls-supported", "False", "--describe-configs-supported", "True", "--idempotent-producer-supported", "True")
}

// TestJavaConsole writes with the console producer and reads with the console consumer.
func TestJavaConsole(t *testing.T) {
	j := findJava(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := startCluster(ctx, t)
	brokers := strings.Join(c.Brokers(), ",")
	j.run(ctx, t, "TopicCommand", "--bootstrap-server", brokers, "--create", "--topic", "console", "--partitions", "2", "--replication-factor", "3")
	var text, want []string
	for n := range 500 {
		text = append(text, fmt.Sprintf("key-%d|%s", n, value(n)))
		want = append(want, fmt.Sprintf("key-%d\t%s", n, value(n)))
	}
	for _, codec := range []string{"none", "zstd"} {
		argv := j.call("ConsoleProducer", "--bootstrap-server", brokers, "--topic", "console", "--compression-codec", codec,
			"--reader-property", "parse.key=true", "--reader-property", "key.separator=|")
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(strings.Join(text, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ConsoleProducer: %v\n%s", err, out)
		}
	}
	for _, protocol := range []string{"classic", "consumer"} {
		out := j.run(ctx, t, "consumer.ConsoleConsumer", "--bootstrap-server", brokers, "--topic", "console", "--from-beginning", "--max-messages", "1000",
			"--timeout-ms", "60000", "--group", "console-"+protocol, "--command-property", "group.protocol="+protocol, "--formatter-property", "print.key=true")
		got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		slices.Sort(got)
		all := append(slices.Clone(want), want...)
		slices.Sort(all)
		if !slices.Equal(got, all) {
			t.Errorf("the %s console consumer printed %d lines that are not the %d written", protocol, len(got), len(all))
		}
	}
}

// TestJavaCompaction lets Kafka's own tester of compaction write to topics with few keys, wait, and
// compare what it reads with what it wrote. Operators' tools set the policy and show it.
func TestJavaCompaction(t *testing.T) {
	j := findJava(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := startCluster(ctx, t, "-c", "log.segment.bytes=1048576", "-c", "log.cleaner.backoff.ms=500", "-c", "log.cleaner.min.cleanable.ratio=0.1")
	at := []string{"--bootstrap-server", strings.Join(c.Brokers(), ",")}
	j.run(ctx, t, "TopicCommand", append(at, "--create", "--topic", "state", "--partitions", "1", "--replication-factor", "3")...)
	entity := append(at, "--entity-type", "topics", "--entity-name", "state")
	j.want(ctx, t, []string{`Completed updating config`}, "ConfigCommand", append(entity, "--alter", "--add-config", "cleanup.policy=[compact,delete],delete.retention.ms=1000")...)
	j.want(ctx, t, []string{`cleanup.policy=compact,delete`, `delete.retention.ms=1000`}, "ConfigCommand", append(entity, "--describe")...)
	j.want(ctx, t, []string{`min.cleanable.dirty.ratio=0.1 .*log.cleaner.min.cleanable.ratio=0.1`}, "ConfigCommand", append(entity, "--describe", "--all")...)
	j.want(ctx, t, []string{`cleanup.policy=compact,delete`}, "TopicCommand", append(at, "--describe", "--topic", "state")...)
	out := j.run(ctx, t, "LogCompactionTester", append(at, "--messages", "150000", "--topics", "1", "--duplicates", "4", "--percent-deletes", "20", "--sleep", "10")...)
	m := regexp.MustCompile(`(\d+) rows of data produced, (\d+) rows of data consumed`).FindStringSubmatch(out)
	if m == nil || !strings.Contains(out, " 0 mismatches") || !strings.Contains(out, "Data verification is completed") {
		t.Fatalf("LogCompactionTester printed\n%s", out)
	}
	produced, _ := strconv.Atoi(m[1])
	consumed, _ := strconv.Atoi(m[2])
	if consumed*10 > produced*9 {
		t.Errorf("%d records read of %d: nothing was compacted", consumed, produced)
	}
}

// TestJavaAdmin uses the tools of operators.
func TestJavaAdmin(t *testing.T) {
	j := findJava(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := startCluster(ctx, t)
	brokers := strings.Join(c.Brokers(), ",")
	at := []string{"--bootstrap-server", brokers}
	topics := func(patterns []string, args ...string) {
		t.Helper()
		j.want(ctx, t, patterns, "TopicCommand", append(at, args...)...)
	}
	topics([]string{`Created topic ledger`}, "--create", "--topic", "ledger", "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=3600000")
	topics([]string{`(?m)^ledger$`}, "--list")
	topics([]string{`PartitionCount: 2`, `ReplicationFactor: 3`, `retention.ms=3600000`}, "--describe", "--topic", "ledger")
	topics(nil, "--alter", "--topic", "ledger", "--partitions", "3")
	topics([]string{`PartitionCount: 3`}, "--describe", "--topic", "ledger")

	configs := func(patterns []string, args ...string) {
		t.Helper()
		j.want(ctx, t, patterns, "ConfigCommand", append(at, args...)...)
	}
	entity := []string{"--entity-type", "topics", "--entity-name", "ledger"}
	configs([]string{`Completed updating config`}, append(entity, "--alter", "--add-config", "max.message.bytes=500000")...)
	configs([]string{`max.message.bytes=500000`, `retention.ms=3600000`}, append(entity, "--describe")...)
	configs([]string{`Completed updating config`}, append(entity, "--alter", "--delete-config", "max.message.bytes")...)
	configs([]string{`max.message.bytes=1048588`}, append(entity, "--describe", "--all")...)
	configs([]string{`log.retention|num.partitions|message.max.bytes`}, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")

	j.run(ctx, t, "VerifiableProducer", append(at, "--topic", "ledger", "--max-messages", "300")...)
	offsets := j.run(ctx, t, "GetOffsetShell", append(at, "--topic", "ledger")...)
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^ledger:\d:(\d+)$`).FindAllStringSubmatch(offsets, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != 300 {
		t.Errorf("GetOffsetShell counts %d records, want 300:\n%s", sum, offsets)
	}
	for _, protocol := range []string{"CLASSIC", "CONSUMER"} {
		j.groups(ctx, t, at, "auditors-"+strings.ToLower(protocol), protocol)
	}
	topics(nil, "--delete", "--topic", "ledger")
	if out := j.run(ctx, t, "TopicCommand", append(at, "--list")...); strings.Contains(out, "ledger") {
		t.Errorf("the deleted topic is listed:\n%s", out)
	}
}

// TestJavaReassign moves replicas with Kafka's own tool.
func TestJavaReassign(t *testing.T) {
	j := findJava(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := startNodes(ctx, t, 5)
	at := []string{"--bootstrap-server", strings.Join(c.Brokers(), ",")}
	j.run(ctx, t, "TopicCommand", append(at, "--create", "--topic", "ledger", "--replica-assignment", "1:2:3,2:3:1,3:1:2")...)
	j.run(ctx, t, "VerifiableProducer", append(at, "--topic", "ledger", "--max-messages", "300")...)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const command = "reassign.ReassignPartitionsCommand"
	topics := file("topics", `{"topics":[{"topic":"ledger"}],"version":1}`)
	out := j.run(ctx, t, command, append(at, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "3,4,5")...)
	_, proposed, ok := strings.Cut(out, "Proposed partition reassignment configuration\n")
	if !ok {
		t.Fatalf("nothing is proposed:\n%s", out)
	}
	plan := file("plan", proposed)
	j.want(ctx, t, []string{`Successfully started partition reassignments? for ledger-0,ledger-1,ledger-2`}, command, append(at, "--execute", "--reassignment-json-file", plan)...)
	for all := regexp.MustCompile(`(?s)ledger-0 is completed.*ledger-1 is completed.*ledger-2 is completed.*Clearing broker-level throttles.*Clearing topic-level throttles`); ; {
		out := j.run(ctx, t, command, append(at, "--verify", "--reassignment-json-file", plan)...) // takes a second
		if all.MatchString(out) {
			break
		}
		if ctx.Err() != nil || t.Failed() {
			t.Fatalf("the reassignment is not complete:\n%s", out)
		}
	}
	j.want(ctx, t, []string{`No partition reassignments found`}, command, append(at, "--list")...)
	described := j.run(ctx, t, "TopicCommand", append(at, "--describe", "--topic", "ledger")...)
	if rows := regexp.MustCompile(`Leader: [345]\s+Replicas: [345],[345],[345]\s+Isr: [345],[345],[345]\s`).FindAllString(described, -1); len(rows) != 3 {
		t.Errorf("%d of 3 partitions are where they were moved to:\n%s", len(rows), described)
	}

	// A move to a node that is away goes on until it is cancelled. The tool itself wants all
	// nodes to be there when it begins, and when it takes throttles away.
	if err := c.Node(1).Kill(); err != nil {
		t.Fatal(err)
	}
	at[1] = strings.Join(c.Brokers()[2:], ",")
	moveTo(ctx, t, c, "ledger", 0, 3, 4, 1)
	back := file("back", `{"version":1,"partitions":[{"topic":"ledger","partition":0,"replicas":[3,4,1]}]}`)
	j.want(ctx, t, []string{`ledger-0: replicas: 3,4,1,5. adding: 1. removing: 5`}, command, append(at, "--list")...)
	j.want(ctx, t, []string{`Adding Replicas: 1\s+Removing Replicas: 5`}, "TopicCommand", append(at, "--describe", "--topic", "ledger")...)
	j.want(ctx, t, []string{`ledger-0 is still in progress`}, command, append(at, "--verify", "--preserve-throttles", "--reassignment-json-file", back)...)
	j.want(ctx, t, []string{`Successfully cancelled partition reassignments? for: ledger-0`}, command, append(at, "--cancel", "--preserve-throttles", "--reassignment-json-file", back)...)
	j.want(ctx, t, []string{`No partition reassignments found`}, command, append(at, "--list")...)
}

// moveTo asks for replicas of a partition as a program does.
func moveTo(ctx context.Context, t *testing.T, c *cluster.Cluster, topic string, partition int32, to ...int32) {
	t.Helper()
	cl, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kadm.AlterPartitionAssignmentsReq{}
	req.Assign(topic, partition, to)
	for {
		got, err := kadm.NewClient(cl).AlterPartitionAssignments(ctx, req)
		if err == nil && got.Error() == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("move %s-%d to %v: %v, %v", topic, partition, to, err, got.Error())
		case <-time.After(100 * time.Millisecond): // the controller may have been on the node that was killed
		}
	}
}

// groups lets ConsumerGroupCommand look at, move and delete a group.
func (j java) groups(ctx context.Context, t *testing.T, at []string, group, protocol string) {
	t.Helper()
	j.run(ctx, t, "VerifiableConsumer", append(at, "--topic", "ledger", "--group-id", group, "--group-protocol", protocol, "--max-messages", "300")...)
	const command = "consumer.group.ConsumerGroupCommand"
	j.want(ctx, t, []string{`(?m)^` + group}, command, append(at, "--list")...)
	j.want(ctx, t, []string{`(?m)^` + group + `\s+ledger\s+\d\s+(?:\S+\s+)?(\d+)\s+\d+\s+0\s`}, command, append(at, "--describe", "--group", group)...)
	j.want(ctx, t, []string{`Empty`}, command, append(at, "--describe", "--group", group, "--state")...)
	j.want(ctx, t, []string{`ledger\s+0\s+0`}, command, append(at, "--reset-offsets", "--group", group, "--topic", "ledger", "--to-earliest", "--execute")...)
	j.want(ctx, t, []string{`(?i)success`}, command, append(at, "--delete-offsets", "--group", group, "--topic", "ledger")...)
	j.want(ctx, t, []string{`(?i)success`}, command, append(at, "--delete", "--group", group)...)
	if out := j.run(ctx, t, command, append(at, "--list")...); strings.Contains(out, group) {
		t.Errorf("the deleted group is listed:\n%s", out)
	}
}
