package clients

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestKcat travels with kcat, that is librdkafka as Debian ships it.
func TestKcat(t *testing.T) {
	kcat := lookPath(t, "kcat")
	format := `{"step":"read","partition":%p,"offset":%o,"n":%k}` + "\n"
	travel(t, client{
		codecs:     kcatCodecs(t, kcat),
		idempotent: true,
		produce: func(brokers, topic, codec string, _, _ int) []string {
			return []string{kcat, "-P", "-b", brokers, "-t", topic, "-K", ";", "-z", codec, "-X", "enable.idempotence=true"}
		},
		feed: func(first, count int) io.Reader {
			var lines strings.Builder
			for n := first; n < first+count; n++ {
				fmt.Fprintf(&lines, "%d;%s\n", n, value(n))
			}
			return strings.NewReader(lines.String())
		},
		read: func(brokers, topic string) []string {
			return []string{kcat, "-C", "-u", "-q", "-b", brokers, "-t", topic, "-o", "beginning", "-f", format}
		},
		group: func(brokers, topic, group string) []string {
			return []string{kcat, "-G", group, "-u", "-q", "-b", brokers, "-f", format, "-X", "auto.offset.reset=earliest",
				"-X", "auto.commit.interval.ms=500", "-X", "session.timeout.ms=10000", topic}
		},
	})
}

// kcatCodecs are the codecs that this build of librdkafka has.
func kcatCodecs(t *testing.T, kcat string) []string {
	t.Helper()
	out, err := exec.Command(kcat, "-V").CombinedOutput()
	if err != nil {
		t.Fatalf("kcat -V: %v\n%s", err, out)
	}
	var codecs []string
	for _, c := range []string{"gzip", "snappy", "lz4", "zstd"} {
		if strings.Contains(string(out), c) {
			codecs = append(codecs, c)
		}
	}
	return codecs
}

// TestFranz travels with twmb/franz-go and both group protocols.
func TestFranz(t *testing.T) {
	protocols(t, buildGo(t, "go", "franz"))
}

// TestSarama travels with IBM/sarama.
func TestSarama(t *testing.T) {
	c := ours(buildGo(t, "go", "sarama"))
	c.codecs, c.idempotent = []string{"gzip", "snappy", "lz4", "zstd"}, true
	travel(t, c)
}

// TestKafkaGo travels with segmentio/kafka-go.
func TestKafkaGo(t *testing.T) {
	c := ours(buildGo(t, "go", "kafkago"))
	c.codecs = []string{"gzip", "snappy", "lz4", "zstd"}
	travel(t, c)
}

// TestKafkaPython travels with kafka-python.
func TestKafkaPython(t *testing.T) {
	c := ours(lookFor(t, "venv", "bin", "python"), "python/client.py")
	c.codecs, c.idempotent = []string{"gzip", "snappy", "lz4", "zstd"}, true
	travel(t, c)
}

// TestKafkaJS travels with kafkajs, which has snappy from a package of its own
// and nobody to give it zstd or lz4.
func TestKafkaJS(t *testing.T) {
	modules := lookFor(t, "node", "node_modules")
	c := ours(lookPath(t, "node"), "js/client.js")
	c.env = []string{"NODE_PATH=" + modules}
	c.codecs, c.idempotent = []string{"gzip", "snappy"}, true
	travel(t, c)
}

// TestConfluent travels with confluent-kafka-go, that is the librdkafka its
// module ships, and both group protocols.
func TestConfluent(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		lookPath(t, "cc")
	}
	protocols(t, buildGo(t, "go/confluent", "", "CGO_ENABLED=1"))
}

// protocols travels with a program that obeys GROUP_PROTOCOL, in one protocol and the other.
func protocols(t *testing.T, bin string) {
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			c := ours(bin)
			c.env = []string{"GROUP_PROTOCOL=" + protocol}
			c.codecs, c.idempotent, c.consumer = []string{"gzip", "snappy", "lz4", "zstd"}, true, protocol == "consumer"
			travel(t, c)
		})
	}
}
