package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/weirmq/weir/broker"
	"github.com/weirmq/weir/cmd/weir/client"
	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
)

func recoverCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name: "recover", Usage: "bring a cluster back that lost most of its first nodes for good",
		Description: "Works on the data folder of a stopped node: the nodes that are kept become the cluster's only\n" +
			"controllers, and its metadata goes on as this node has it. What the others had decided and this\n" +
			"node never heard of is lost. Without --yes it only says what would happen.\n" +
			"With more than one surviving node give all of them with --keep and run it on each, while all are stopped.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Aliases: []string{"d"}, Value: broker.DefaultConfig().DataDir, EnvVars: []string{"WEIR_DATA"}, Usage: "data folder `DIR` of the surviving node"},
			&cli.StringFlag{Name: "keep", Usage: "ids `N,…` of all surviving nodes that are to vote, this one included (default: this one alone)"},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do it: the other nodes will never come back with their old folders"},
		},
		Action: func(c *cli.Context) error { return runRecover(c, stdout, stderr) },
	}
}

func runRecover(c *cli.Context, stdout, stderr io.Writer) error {
	if c.NArg() > 0 {
		return &client.Error{Code: client.ExitUsage, Text: fmt.Sprintf("recover takes no argument %q; the data folder is given with --data", c.Args().First())}
	}
	keep, err := nodeIDs(c.String("keep"))
	if err != nil {
		return err
	}
	log := hclog.New(&hclog.LoggerOptions{Name: "weir", Level: hclog.Warn, Output: stderr})
	r, err := broker.OpenRecovery(c.String("data"), log)
	if err != nil {
		return &client.Error{Code: client.ExitFailed, Text: "cannot recover: " + err.Error()}
	}
	err = recoverFolder(r, keep, c.Bool("yes"), stdout)
	if err = errors.Join(err, r.Close()); err != nil {
		var own *client.Error
		if errors.As(err, &own) {
			return own
		}
		return &client.Error{Code: client.ExitFailed, Text: "cannot recover: " + err.Error()}
	}
	return nil
}

func recoverFolder(r *broker.Recovery, keep []fsm.BrokerID, sure bool, stdout io.Writer) error {
	o, err := r.Outlook(keep)
	if err != nil {
		return err
	}
	printOutlook(stdout, o)
	if !sure {
		return &client.Error{Code: client.ExitUsage, Text: "nothing was changed: add --yes to go on"}
	}
	if err := r.Recover(keep); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "done: start node %d as before\n", o.Identity.NodeID)
	return err
}

// printOutlook says what stays and what may be lost.
func printOutlook(w io.Writer, o controller.Outlook) {
	fmt.Fprintf(w, "node %d of cluster %s: its metadata ends at index %d, term %d\n", o.Identity.NodeID, o.Identity.ClusterID, o.Index, o.Term)
	fmt.Fprintf(w, "controllers: now %s; then %s\n", idText(o.Voters), idText(o.Kept))
	if len(o.Others) > 0 {
		fmt.Fprintf(w, "nodes without a vote that stay: %s\n", idText(o.Others))
	}
	if len(o.GivenUp) > 0 {
		fmt.Fprintf(w, "given up: %s. They must never start again with their old folders: they could form a second cluster.\n", idText(o.GivenUp))
	}
	fmt.Fprintf(w, "topics %d, partitions %d:\n", o.Topics, o.Partitions)
	for _, line := range []struct {
		count int
		what  string
	}{
		{o.Complete, "have a replica on the nodes that stay which holds every acknowledged record"},
		{o.Stale, "have only replicas there that may lack records: the best of them leads when all are back"},
		{o.Lost, "have no replica there: their records are lost; delete and create those topics again"},
		{o.BelowMinISR, "have fewer replicas there than min.insync.replicas: lower it before acks=all is answered"},
	} {
		if line.count > 0 {
			fmt.Fprintf(w, "  %d %s\n", line.count, line.what)
		}
	}
	fmt.Fprintln(w, "Lost as well: topics, settings, groups and committed offsets that were changed after that index on the nodes given up.")
}

func idText(ids []fsm.BrokerID) string {
	if len(ids) == 0 {
		return "none"
	}
	var words []string
	for _, id := range ids {
		words = append(words, strconv.Itoa(int(id)))
	}
	return strings.Join(words, ", ")
}

// nodeIDs reads a list of node ids.
func nodeIDs(list string) ([]fsm.BrokerID, error) {
	var ids []fsm.BrokerID
	for _, word := range strings.Split(list, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil || id < 1 {
			return nil, &client.Error{Code: client.ExitUsage, Text: fmt.Sprintf("--keep: %q is not the id of a node", word)}
		}
		ids = append(ids, fsm.BrokerID(id))
	}
	return ids, nil
}
