package host

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Clients is the place of the clients as an end of a Link; nodes are 1 and up.
const Clients = 0

// Link is one direction between two places.
type Link struct{ From, To int }

// Cut is what becomes of what a link is given.
type Cut int

// What becomes of it. Refused is between machines only, elsewhere it is as Lost.
const (
	Carried Cut = iota
	Lost
	Refused // as a firewall does it: the sender's connection is reset, and a new one refused
)

// Cuts says what becomes of what links are given; those it does not name carry it.
type Cuts map[Link]Cut

// Both cuts both directions between two places.
func (c Cuts) Both(a, b int, how Cut) { c[Link{a, b}], c[Link{b, a}] = how, how }

// Network connects the hosts. Its methods are called by one goroutine at a time.
type Network interface {
	// Listen returns the addresses that the process on host i binds: client, peer, admin.
	Listen(i int) (client, peer, admin string)
	// Peer returns the address that the other nodes know host i's peer port by.
	Peer(i int) string
	// Command returns the arguments that run argv on host i.
	Command(i int, argv []string) []string
	// Cut cuts exactly these links.
	Cut(c Cuts) error
	// Slow limits what host i sends to bytes a second; 0 lifts the limit.
	Slow(i int, bytesPerSecond int) error
	// Up tells that host i's process is about to run, Down that it does not run.
	Up(i int) error
	Down(i int)
	// Separate tells whether the hosts are separate machines to the kernel.
	Separate() bool
	Close() error
}

const (
	clientPort, peerPort, adminPort = 9092, 9093, 9644
	subnet                          = "10.211.7." // seen by nobody but us: the namespace is private
	bridgeHost                      = 254
)

// spaces is a network of namespaces on a bridge.
type spaces struct{ n int }

// NewSpaces makes n network namespaces on a bridge. The caller must be Inside.
func NewSpaces(n int) (Network, error) {
	s := &spaces{n: n}
	script := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "weir0", "type", "bridge"},
		{"ip", "addr", "add", fmt.Sprintf("%s%d/24", subnet, bridgeHost), "dev", "weir0"},
		{"ip", "link", "set", "weir0", "up"},
	}
	for i := 1; i <= n; i++ {
		ns, veth := s.name(i), fmt.Sprintf("weir%d", i)
		script = append(script,
			[]string{"ip", "netns", "add", ns},
			[]string{"ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", ns},
			[]string{"ip", "link", "set", veth, "master", "weir0", "up"},
			[]string{"ip", "-n", ns, "addr", "add", s.address(i) + "/24", "dev", "eth0"},
			[]string{"ip", "-n", ns, "link", "set", "eth0", "up"},
			[]string{"ip", "-n", ns, "link", "set", "lo", "up"})
	}
	for _, argv := range script {
		if err := command(argv, ""); err != nil {
			return nil, err
		}
	}
	// Show now, not at the first fault, that rules and buckets can be had.
	if err := s.Cut(Cuts{}); err != nil {
		return nil, err
	}
	if err := s.Slow(1, 1<<20); err != nil {
		return nil, err
	}
	return s, s.Slow(1, 0)
}

func (s *spaces) name(i int) string    { return fmt.Sprintf("weir-host-%d", i) }
func (s *spaces) address(i int) string { return fmt.Sprintf("%s%d", subnet, i) }

func (s *spaces) Listen(i int) (client, peer, admin string) {
	a := s.address(i)
	return fmt.Sprintf("%s:%d", a, clientPort), fmt.Sprintf("%s:%d", a, peerPort), fmt.Sprintf("%s:%d", a, adminPort)
}

func (s *spaces) Peer(i int) string { return fmt.Sprintf("%s:%d", s.address(i), peerPort) }

func (s *spaces) Command(i int, argv []string) []string {
	return append([]string{"ip", "netns", "exec", s.name(i)}, argv...)
}

// Cut writes each host's rules anew: a host drops or refuses what comes from where the link to it
// is cut, and what it would send to clients that it is cut off from.
func (s *spaces) Cut(c Cuts) error {
	for i := 1; i <= s.n; i++ {
		var rules strings.Builder
		rules.WriteString("table inet weir\ndelete table inet weir\ntable inet weir {\nchain in { type filter hook input priority 0; policy accept;\n")
		for from := range s.n + 1 {
			if from == i || c[Link{from, i}] == Carried {
				continue
			}
			if c[Link{from, i}] == Refused { // but for the other side's refusal
				fmt.Fprintf(&rules, "ip saddr %[1]s tcp flags & rst == rst accept\nip saddr %[1]s meta l4proto tcp reject with tcp reset\n", s.place(from))
			}
			fmt.Fprintf(&rules, "ip saddr %s drop\n", s.place(from))
		}
		rules.WriteString("}\nchain out { type filter hook output priority 0; policy accept;\n")
		if c[Link{i, Clients}] != Carried {
			fmt.Fprintf(&rules, "ip daddr %s drop\n", s.place(Clients))
		}
		rules.WriteString("}\n}\n")
		if err := command([]string{"ip", "netns", "exec", s.name(i), "nft", "-f", "-"}, rules.String()); err != nil {
			return err
		}
	}
	return nil
}

func (s *spaces) place(i int) string {
	if i == Clients {
		return s.address(bridgeHost)
	}
	return s.address(i)
}

func (s *spaces) Slow(i int, bytesPerSecond int) error {
	tc := []string{"ip", "netns", "exec", s.name(i), "tc", "qdisc"}
	if bytesPerSecond == 0 {
		return command(append(tc, "del", "dev", "eth0", "root"), "")
	}
	return command(append(tc, "replace", "dev", "eth0", "root", "tbf", "rate", fmt.Sprintf("%dbit", bytesPerSecond*8),
		"burst", "32kb", "latency", "400ms"), "")
}

func (s *spaces) Up(int) error   { return nil }
func (s *spaces) Down(int)       {}
func (s *spaces) Separate() bool { return true }
func (s *spaces) Close() error   { return nil } // the kernel takes the namespaces with the process

// command runs a program with text as its input and reports what it said when it fails.
func command(argv []string, text string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// loopback is a network of ports on 127.0.0.1, each peer port behind a proxy.
type loopback struct {
	ports map[int][3]string
	peers map[int]*PeerProxy
}

// NewLoopback makes places for n hosts on an address of 127.0.0.0/8 that is this
// process's own: a port of 127.0.0.1 could be taken by anybody's outgoing connection
// while the node that wants it back is down.
func NewLoopback(n int) (Network, error) {
	l := &loopback{ports: map[int][3]string{}, peers: map[int]*PeerProxy{}}
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&63, pid>>8&255, pid&255)
	for i := 1; i <= n; i++ {
		at := func(port int) string { return fmt.Sprintf("%s:%d", address, port+10*i) }
		l.ports[i] = [3]string{at(clientPort), at(peerPort), at(adminPort)}
		proxy, err := newPeerProxy(i, at(peerPort+1000), at(peerPort))
		if err != nil {
			return nil, err
		}
		l.peers[i] = proxy
	}
	return l, nil
}

func (l *loopback) Listen(i int) (client, peer, admin string) {
	return l.ports[i][0], l.ports[i][1], l.ports[i][2]
}
func (l *loopback) Peer(i int) string                     { return l.peers[i].address }
func (l *loopback) Command(_ int, argv []string) []string { return argv }
func (l *loopback) Up(i int) error                        { return l.peers[i].open() }
func (l *loopback) Down(i int)                            { l.peers[i].shut() }
func (l *loopback) Separate() bool                        { return false }

func (l *loopback) Cut(c Cuts) error {
	for _, p := range l.peers {
		p.setCuts(c)
	}
	return nil
}

func (l *loopback) Slow(i, bytesPerSecond int) error {
	for _, p := range l.peers {
		p.setRate(i, bytesPerSecond)
	}
	return nil
}

// Hold delays what peers send to host i on connections of one kind until it is lifted
// with an empty kind; only loopback has it.
func (l *loopback) Hold(i int, kind string) { l.peers[i].setHeld(kind) }

func (l *loopback) Close() error {
	for _, p := range l.peers {
		p.shut()
	}
	return nil
}
