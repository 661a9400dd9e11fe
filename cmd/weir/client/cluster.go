package client

import (
	"fmt"
	"net"
	"strconv"

	"github.com/urfave/cli/v2"
)

func (e *Env) clusterCommand() *cli.Command {
	return &cli.Command{
		Name: "cluster", Usage: "look at the cluster, and change who is in it",
		Subcommands: append([]*cli.Command{
			{Name: "info", Usage: "show cluster id, controller and nodes", Action: e.clusterInfo, Flags: append(connectionFlags(), outputFlag())},
		}, e.memberCommands()...),
	}
}

// nodeRow is one node of cluster info.
type nodeRow struct {
	ID         int32  `json:"id"`
	Address    string `json:"address"`
	Rack       string `json:"rack,omitempty"`
	Controller bool   `json:"controller"`
	Leads      int    `json:"leads"`
	Replicas   int    `json:"replicas"`
}

// clusterDescription is the whole answer of cluster info.
type clusterDescription struct {
	ClusterID  string    `json:"cluster_id"`
	Controller int32     `json:"controller"`
	Nodes      []nodeRow `json:"nodes"`
	Topics     int       `json:"topics"`
	Partitions int       `json:"partitions"`
}

func (e *Env) clusterInfo(c *cli.Context) error {
	ctx, adm, done, err := e.admin(c)
	if err != nil {
		return err
	}
	defer done()
	m, err := adm.Metadata(ctx)
	if err != nil {
		return explain("describe the cluster", brokersOf(c), err)
	}
	out := clusterDescription{ClusterID: m.Cluster, Controller: m.Controller, Topics: len(m.Topics), Nodes: []nodeRow{}}
	leads, holds := map[int32]int{}, map[int32]int{}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			out.Partitions++
			leads[p.Leader]++
			for _, r := range p.Replicas {
				holds[r]++
			}
		}
	}
	t := table{header: []string{"NODE", "ADDRESS", "CONTROLLER", "LEADS", "REPLICAS"}}
	for _, b := range m.Brokers {
		row := nodeRow{ID: b.NodeID, Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), Controller: b.NodeID == m.Controller, Leads: leads[b.NodeID], Replicas: holds[b.NodeID]}
		if b.Rack != nil {
			row.Rack = *b.Rack
		}
		mark := ""
		if row.Controller {
			mark = "*"
		}
		out.Nodes = append(out.Nodes, row)
		t.add(row.ID, row.Address, mark, row.Leads, row.Replicas)
	}
	t.value = out
	if c.String("output") == "table" {
		fmt.Fprintf(e.Stdout, "cluster %s, %d nodes up, %d topics, %d partitions\n", out.ClusterID, len(out.Nodes), out.Topics, out.Partitions)
	}
	return t.print(c, e.Stdout)
}
