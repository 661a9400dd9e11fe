package broker

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatalf("DefaultConfig().Validate() = %v, want nil", err)
	}
}

func TestListenersFollowJoin(t *testing.T) {
	c := DefaultConfig()
	if got := []string{c.clientListen(), c.peerListen(), c.adminListen()}; !slices.Equal(got,
		[]string{"127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9644"}) {
		t.Errorf("alone the node listens on %v, want loopback only", got)
	}
	c.Join = []string{"a:9093", "b:9093", "c:9093"}
	if got := []string{c.clientListen(), c.peerListen()}; !slices.Equal(got, []string{"0.0.0.0:9092", "0.0.0.0:9093"}) {
		t.Errorf("with a join list the node listens on %v, want all interfaces", got)
	}
	c.ClientListen = "127.0.0.1:9092"
	if got := c.clientListen(); got != "127.0.0.1:9092" {
		t.Errorf("a listener that was named became %s", got)
	}
	c.AdminListen = "none"
	if got := c.adminListen(); got != "" {
		t.Errorf("admin listener none = %q, want it off", got)
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	cases := map[string]struct {
		change func(*Config)
		want   string
	}{
		"data folder":      {func(c *Config) { c.DataDir = " " }, "name a folder"},
		"listener":         {func(c *Config) { c.ClientListen = "localhost" }, "client listener"},
		"port":             {func(c *Config) { c.PeerListen = "localhost:99999" }, "peer listener"},
		"same port":        {func(c *Config) { c.PeerListen = "127.0.0.1:9092" }, "give each its own port"},
		"advertise":        {func(c *Config) { c.Advertise = "host:" }, "advertised address"},
		"join":             {func(c *Config) { c.Join = []string{"a"} }, "join list"},
		"join twice":       {func(c *Config) { c.Join = []string{"a:1", "a:1"} }, "twice"},
		"node id":          {func(c *Config) { c.NodeID = -1 }, "node.id"},
		"session":          {func(c *Config) { c.Session = time.Second; c.Heartbeat = time.Second }, "three heartbeats"},
		"heartbeat":        {func(c *Config) { c.Heartbeat = 0 }, "broker.heartbeat.interval.ms"},
		"lag":              {func(c *Config) { c.ReplicaLagMax = 0 }, "replica.lag.time.max.ms"},
		"partitions":       {func(c *Config) { c.NumPartitions = 0 }, "num.partitions"},
		"min isr above rf": {func(c *Config) { c.ReplicationFactor = 1; c.MinInSync = 2 }, "min.insync.replicas"},
		"message size":     {func(c *Config) { c.MessageMaxBytes = 3 }, "message.max.bytes"},
		"segment":          {func(c *Config) { c.SegmentBytes = 3 }, "log.segment.bytes"},
		"request size":     {func(c *Config) { c.RequestMaxBytes = 2000 }, "socket.request.max.bytes"},
		"queued":           {func(c *Config) { c.QueuedMaxBytes = 1 }, "queued.max.request.bytes"},
		"connections":      {func(c *Config) { c.MaxConnections = 0 }, "max.connections"},
		"idle":             {func(c *Config) { c.ConnectionsMaxIdle = 0 }, "connections.max.idle.ms"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			tc.change(&c)
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Validate() = %v, want an error that says %q", err, tc.want)
			}
		})
	}
}

func TestSetKey(t *testing.T) {
	c := DefaultConfig()
	for key, value := range map[string]string{
		"node.id": "7", "log.dirs": "/data", "broker.session.timeout.ms": "9000", "message.max.bytes": "5000",
		"listeners": "PLAINTEXT://127.0.0.1:1234", "num.network.threads": "8",
	} {
		if err := c.Set(key, value); err != nil {
			t.Errorf("Set(%s, %s) = %v", key, value, err)
		}
	}
	if c.NodeID != 7 || c.DataDir != "/data" || c.Session != 9*time.Second || c.MessageMaxBytes != 5000 ||
		c.ClientListen != "127.0.0.1:1234" {
		t.Errorf("the settings did not arrive: %+v", c)
	}
	if !slices.Equal(c.Inert, []string{"num.network.threads"}) {
		t.Errorf("Inert = %v, want num.network.threads alone", c.Inert)
	}
}

func TestSetRefuses(t *testing.T) {
	cases := []struct{ key, value, want string }{
		{"num.partition", "3", "did you mean num.partitions?"},
		{"log.retention.hour", "3", "did you mean log.retention.hours?"},
		{"entirely.unlike.anything.known", "3", "not a configuration key"},
		{"num.partitions", "many", "not a whole number"},
		{"num.partitions", "0", "use a number from 1"},
		{"listeners", "SSL://a:1", "not supported"},
	}
	for _, tc := range cases {
		c := DefaultConfig()
		if err := c.Set(tc.key, tc.value); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Set(%s, %s) = %v, want an error that says %q", tc.key, tc.value, err, tc.want)
		}
	}
}

func TestKeyIsEffectiveOrInert(t *testing.T) {
	for _, k := range Keys() {
		if isInertKey(k.Name) {
			t.Errorf("%s is listed both as effective and as inert", k.Name)
		}
	}
}
