package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Cluster is the hosts of a run.
type Cluster struct {
	Hosts []*Host

	spare     *Host // nil until it is asked for
	dir       string
	bin, self string   // weir, and the program that runs everything
	join      []string // peer addresses of all hosts
	settings  []string // KEY=VALUE of weir start -c
	net       Network
	cuts      Cuts
}

// Plan says what cluster to lay out.
type Plan struct {
	Bin, Self string // the weir binary, and our own, which answers to OnHostVerb
	Dir       string
	Nodes     int
	Settings  []string
	Network   Network // with a place more than there are nodes, where there may be a spare one
}

// New lays out a cluster without starting it.
func New(p Plan) (*Cluster, error) {
	c := &Cluster{dir: p.Dir, bin: p.Bin, self: p.Self, settings: p.Settings, net: p.Network, cuts: Cuts{}}
	for i := 1; i <= p.Nodes; i++ {
		c.join = append(c.join, p.Network.Peer(i))
		h, err := c.newHost(i)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.Hosts = append(c.Hosts, h)
	}
	return c, nil
}

// Spare is a host beside those that the cluster is made of, which it joins when it starts. It is
// another node each time that its data folder is empty, so its ID is that of its place alone.
func (c *Cluster) Spare() (_ *Host, err error) {
	if c.spare == nil {
		c.spare, err = c.newHost(len(c.Hosts) + 1)
	}
	return c.spare, err
}

// All lists all hosts, the spare one last.
func (c *Cluster) All() []*Host {
	if c.spare == nil {
		return c.Hosts
	}
	return append(slices.Clone(c.Hosts), c.spare)
}

func (c *Cluster) newHost(i int) (*Host, error) {
	dir := filepath.Join(c.dir, fmt.Sprintf("host-%d", i))
	h := &Host{ID: i, Dir: dir, cluster: c}
	h.listen, h.peer, h.admin = c.net.Listen(i)
	if err := os.MkdirAll(filepath.Join(dir, "disk"), 0o755); err != nil {
		return nil, err
	}
	if err := h.NewBoot(); err != nil {
		return nil, err
	}
	front := "127.0.0.1:0"
	if c.net.Separate() {
		d, err := newDisk(filepath.Join(dir, "disk.img"), filepath.Join(dir, "disk"))
		if err != nil {
			return nil, fmt.Errorf("make a disk for host %d: %w", i, err)
		}
		h.Disk = d
	}
	p, err := newProxy(i, front, h.listen)
	if err != nil {
		return nil, err
	}
	h.Front = p
	return h, nil
}

// Network is what connects the hosts.
func (c *Cluster) Network() Network { return c.net }

// Host returns the host with that node id, or nil.
func (c *Cluster) Host(id int32) *Host {
	if id < 1 || int(id) > len(c.Hosts) {
		return nil
	}
	return c.Hosts[id-1]
}

// Brokers lists the addresses by which clients reach the nodes.
func (c *Cluster) Brokers() []string {
	var out []string
	for _, h := range c.Hosts {
		if !h.Lost() {
			out = append(out, h.Front.address)
		}
	}
	return out
}

// Cut adds links to those that carry nothing.
func (c *Cluster) Cut(add Cuts) error {
	next := Cuts{}
	maps.Copy(next, c.cuts)
	maps.Copy(next, add)
	return c.setCuts(next)
}

// Heal makes all links carry everything again.
func (c *Cluster) Heal() error { return c.setCuts(Cuts{}) }

func (c *Cluster) setCuts(next Cuts) error {
	c.cuts = next
	if !c.net.Separate() { // clients' links are the front proxies' there
		for _, h := range c.All() {
			h.Front.setCuts(next)
		}
	}
	return c.net.Cut(next)
}

// Close kills what still runs and takes mounts away.
func (c *Cluster) Close() error {
	var failed error
	for _, h := range c.All() {
		_ = h.Resume() // a stopped process dies of SIGKILL, too; its group's children need not
		failed = errors.Join(failed, h.Kill())
		h.Front.shut()
		if h.taint != nil {
			failed = errors.Join(failed, h.taint.Close())
		}
		if h.Disk != nil {
			failed = errors.Join(failed, h.Disk.detach())
		}
	}
	return errors.Join(failed, c.net.Close())
}
