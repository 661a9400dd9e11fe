package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/weirmq/weir/broker"
	"github.com/weirmq/weir/cmd/weir/client"
)

// stopPatience bounds a controlled shutdown; past it the node stops as it is.
const stopPatience = 60 * time.Second

func startCommand(stdout, stderr io.Writer) *cli.Command {
	d := broker.DefaultConfig()
	return &cli.Command{
		Name: "start", Usage: "run a node",
		Description: "Without flags it runs a cluster of one on loopback. The same command with the same --join on three\nhosts makes a cluster of three; a later node that lists nodes of a cluster joins it. SIGTERM hands leaderships over and stops; a second one stops at once.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Aliases: []string{"d"}, Value: d.DataDir, EnvVars: []string{"WEIR_DATA"}, Usage: "keep everything in `DIR`"},
			&cli.StringFlag{Name: "listen", EnvVars: []string{"WEIR_LISTEN"}, Usage: "`HOST:PORT` for Kafka clients (default: " + broker.DefaultClientListen + ", or port 9092 of all interfaces with --join)"},
			&cli.StringFlag{Name: "peer", EnvVars: []string{"WEIR_PEER"}, Usage: "`HOST:PORT` for other nodes (default: " + broker.DefaultPeerListen + ", or port 9093 of all interfaces with --join)"},
			&cli.StringFlag{Name: "admin", Value: d.AdminListen, EnvVars: []string{"WEIR_ADMIN"}, Usage: "`HOST:PORT` for metrics and health over HTTP, or none"},
			&cli.StringFlag{Name: "advertise", EnvVars: []string{"WEIR_ADVERTISE"}, Usage: "`HOST:PORT` that clients are told to use (default: the host of this node in --join, or the listener)"},
			&cli.StringFlag{Name: "join", Aliases: []string{"j"}, EnvVars: []string{"WEIR_JOIN"}, Usage: "peer addresses `HOST:PORT,…`: of a new cluster's first nodes, this one included, the same on each; or of nodes of a cluster to join"},
			&cli.IntFlag{Name: "node-id", EnvVars: []string{"WEIR_NODE_ID"}, Usage: "id `N` of this node (default: its position in --join; in a cluster that exists the next that was never used)"},
			&cli.StringFlag{Name: "rack", EnvVars: []string{"WEIR_RACK"}, Usage: "failure domain `NAME` of this node"},
			&cli.StringSliceFlag{Name: "config", Aliases: []string{"c"}, Usage: "a setting as `KEY=VALUE` under Kafka's name; may be repeated"},
			&cli.StringFlag{Name: "log-level", Value: "info", EnvVars: []string{"WEIR_LOG_LEVEL"}, Usage: "`LEVEL`: debug, info, warn or error"},
			&cli.BoolFlag{Name: "log-json", EnvVars: []string{"WEIR_LOG_JSON"}, Usage: "log as JSON"},
		},
		Action: func(c *cli.Context) error { return runStart(c, stdout, stderr) },
	}
}

// nodeConfig maps flags to the node's configuration. Flags win over -c.
func nodeConfig(c *cli.Context, stderr io.Writer) (broker.Config, error) {
	cfg := broker.DefaultConfig()
	usage := func(format string, args ...any) (broker.Config, error) {
		return cfg, &client.Error{Code: client.ExitUsage, Text: fmt.Sprintf(format, args...)}
	}
	if c.NArg() > 0 {
		return usage("start takes no argument %q; the data folder is given with --data", c.Args().First())
	}
	for _, kv := range c.StringSlice("config") {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return usage("-c %q is not KEY=VALUE", kv)
		}
		if err := cfg.Set(k, v); err != nil {
			return usage("%v", err)
		}
	}
	for name, field := range map[string]*string{"data": &cfg.DataDir, "listen": &cfg.ClientListen, "peer": &cfg.PeerListen, "admin": &cfg.AdminListen, "advertise": &cfg.Advertise, "rack": &cfg.Rack} {
		if c.IsSet(name) {
			*field = c.String(name)
		}
	}
	if c.IsSet("node-id") {
		cfg.NodeID = int32(c.Int("node-id"))
	}
	for _, addr := range strings.Split(c.String("join"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			cfg.Join = append(cfg.Join, addr)
		}
	}
	level := hclog.LevelFromString(c.String("log-level"))
	if level == hclog.NoLevel {
		return usage("--log-level %q is unknown; use debug, info, warn or error", c.String("log-level"))
	}
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: "weir", Level: level, Output: stderr, JSONFormat: c.Bool("log-json")})
	abs, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return cfg, fmt.Errorf("find the data folder %s: %w", cfg.DataDir, err)
	}
	cfg.DataDir = abs
	if err := cfg.Validate(); err != nil {
		return usage("%v", err)
	}
	return cfg, nil
}

func runStart(c *cli.Context, stdout, stderr io.Writer) error {
	cfg, err := nodeConfig(c, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "weir %s, data in %s\n", version, cfg.DataDir)
	defer paceCollector()()
	node, err := broker.Open(c.Context, cfg)
	if err != nil {
		if c.Context.Err() != nil {
			return &client.Error{Code: client.ExitInterrupted, Text: "stopped before the node was ready"}
		}
		return &client.Error{Code: client.ExitFailed, Text: err.Error()}
	}
	fmt.Fprintf(stdout, "node %d of cluster %s is ready for Kafka clients at %s\n", node.ID(), node.ClusterID(), node.Addr())
	var broken error
	select {
	case <-c.Context.Done():
	case broken = <-node.Failed():
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if broken != nil {
		node.Abort()
		return &client.Error{Code: client.ExitFailed, Text: broken.Error()}
	}
	if err := node.Close(ctx); err != nil {
		return fmt.Errorf("stop the node: %w", err)
	}
	fmt.Fprintln(stdout, "stopped cleanly")
	return nil
}
