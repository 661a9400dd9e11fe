package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weirmq/weir/controller"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/storage"
	"github.com/weirmq/weir/storage/vfs"
)

const (
	// lockFile is held for the life of the process, before anything in the folder is read.
	lockFile = "weir.lock"
)

// Node is one running node: the composition of controller, storage, replicas,
// feeds and the client and admin servers.
//
// Its own goroutines are the two listeners' accept loops; Close and Abort wait
// for them and for those of its parts.
type Node struct {
	cfg  Config
	log  hclog.Logger
	fsys vfs.FS
	// calls is fsys, too, and knows which calls of it have not returned.
	calls *vfs.Watch

	clientListener net.Listener
	adminListener  net.Listener // nil when it is off
	lock           io.Closer
	meta           meta
	metaMu         sync.Mutex // guards meta once the keeper runs
	dir            *storage.Dir
	controller     *controller.Node
	env            *environment
	keeper         *keeper
	disk           *diskWatch
	follows        *follows
	feeders        *feeders
	reconciler     *reconciler
	retention      *retention
	groups         *groups
	server         *server
	admin          *admin
	metrics        *metrics
	advertised     fsm.Endpoint

	// stopRoles ends reconciler, keeper, changes and retention; started tells that they run.
	stopRoles context.CancelFunc
	started   bool
	serving   sync.WaitGroup
	ready     atomic.Bool
	failed    chan error // capacity 1: the first reason why the process must end
	stopping  sync.Once
}

// Open starts a node and returns when it serves clients. It ends early, undoing
// what it began, when ctx does.
func Open(ctx context.Context, cfg Config) (*Node, error) { return openOn(ctx, cfg, vfs.OS()) }

// openOn is Open with the logs on a given file system.
func openOn(ctx context.Context, cfg Config, fsys vfs.FS) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	calls := vfs.NewWatch(fsys)
	n := &Node{cfg: cfg, log: cfg.Logger, fsys: calls, calls: calls, failed: make(chan error, 1), metrics: newMetrics()}
	if len(cfg.Inert) > 0 {
		n.log.Warn("settings that have no effect on this node", "keys", cfg.Inert)
	}
	if err := n.open(ctx); err != nil {
		n.Abort()
		return nil, err
	}
	n.ready.Store(true)
	return n, nil
}

// open takes the steps of a boot. The listeners are bound first: a port in use
// is the most frequent error, and a client that dials early is served as soon as
// the node is.
func (n *Node) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		n.listen, n.takeFolder, n.openParts, n.adoptFolders, n.join, n.serve,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) listen(context.Context) error {
	var err error
	if n.clientListener, err = listenOn("client", n.cfg.clientListen()); err != nil {
		return err
	}
	if addr := n.cfg.adminListen(); addr != "" {
		if n.adminListener, err = listenOn("admin", addr); err != nil {
			return err
		}
		n.serveAdmin() // a node that is starting says so
	}
	return nil
}

// takeFolder makes the data folder this process's own and reads whose it is.
func (n *Node) takeFolder(context.Context) error {
	dir := n.cfg.DataDir
	if err := storage.MakeFolder(n.fsys, dir); err != nil {
		return fmt.Errorf("make the data folder %s: %w: choose a folder that this user may write", dir, err)
	}
	var err error
	n.lock, err = n.fsys.Lock(filepath.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("the data folder %s is in use by another process: stop that one or choose another folder: %w", dir, err)
	}
	if err != nil {
		return fmt.Errorf("lock the data folder %s: %w: choose a folder that this user may write", dir, err)
	}
	var found bool
	if n.meta, found, err = readMeta(n.fsys, dir); err != nil {
		return err
	}
	if !found {
		return n.checkEmpty()
	}
	return nil
}

// checkEmpty refuses a folder that has a Raft log and does not say whose it is.
func (n *Node) checkEmpty() error {
	if found, err := controller.HasMetadata(n.fsys, n.cfg.raftDir()); err == nil && found {
		entries, err := n.fsys.ReadDir(filepath.Join(n.cfg.raftDir(), "snapshots"))
		if err == nil && len(entries) > 0 {
			return fmt.Errorf("the data folder %s holds metadata but no %s: restore that file, or start with another folder", n.cfg.DataDir, metaFile)
		}
	}
	return nil
}

// openParts recovers the logs and catches up with the metadata, side by side.
func (n *Node) openParts(ctx context.Context) error {
	recovered := make(chan error, 1)
	go func() { recovered <- n.openDir() }() // ends by itself; its result is always received below
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan error, 1)
	go func() { opened <- n.openController(ctx) }() // as above
	var errs [2]error
	for range 2 {
		select {
		case errs[0] = <-recovered:
			if errs[0] != nil {
				cancel()
			}
		case errs[1] = <-opened:
		}
	}
	if errs[0] != nil {
		return errs[0]
	}
	return errs[1]
}

func (n *Node) openDir() error {
	o := storage.DefaultOptions()
	o.SegmentBytes = n.cfg.SegmentBytes
	o.IndexIntervalBytes = n.cfg.IndexIntervalBytes
	o.FlushInterval = n.cfg.FlushInterval
	o.FlushBytes = n.cfg.FlushBytes
	o.ScrubRate, o.ScrubInterval = n.cfg.scrubs()
	n.cfg.Compaction.options(&o)
	o.Logger = n.log.Named("storage")
	d, err := storage.OpenDir(n.fsys, n.cfg.DataDir, o)
	if err != nil {
		return fmt.Errorf("open the logs in %s: %w", n.cfg.DataDir, err)
	}
	n.dir = d
	n.metrics.watchTail(d)
	n.metrics.watchScrub(d)
	n.metrics.watchCleaner(d)
	return nil
}

func (n *Node) openController(ctx context.Context) error {
	c := controller.DefaultConfig()
	c.Listen = n.cfg.peerListen()
	c.Join = n.cfg.Join
	c.NodeID = fsm.BrokerID(n.cfg.NodeID)
	c.RaftDir = n.cfg.raftDir()
	c.Session, c.Heartbeat = n.cfg.Session, n.cfg.Heartbeat
	c.Topics.Partitions, c.Topics.ReplicationFactor = n.cfg.NumPartitions, n.cfg.ReplicationFactor
	c.Logger = n.log.Named("controller")
	c.SaveIdentity = n.saveIdentity
	c.Exit = n.fail
	if n.meta.identity.ClusterID != "" {
		id := n.meta.identity
		c.Identity = &id
	}
	host, port, err := n.peerAddress()
	if err != nil {
		return err
	}
	c.Advertise = fsm.Endpoint{Host: host, Port: port}
	l, err := listenOn("peer", c.Listen)
	if err != nil {
		return err
	}
	c.Listener = l
	ctl, err := controller.Open(ctx, c)
	if err != nil {
		_ = l.Close() // it may not have been taken over
		return fmt.Errorf("open the metadata: %w", err)
	}
	n.controller = ctl
	return nil
}

// saveIdentity keeps a new identity before it is used.
func (n *Node) saveIdentity(id controller.Identity) error {
	n.metaMu.Lock()
	defer n.metaMu.Unlock()
	n.meta = meta{identity: id}
	return n.meta.write(n.fsys, n.cfg.DataDir)
}

// recordIndex keeps the Image index that the folders agree with.
func (n *Node) recordIndex(index uint64) error {
	n.metaMu.Lock()
	defer n.metaMu.Unlock()
	if index <= n.meta.reconciled {
		return nil
	}
	next := meta{identity: n.meta.identity, reconciled: index}
	if err := next.write(n.fsys, n.cfg.DataDir); err != nil {
		return err
	}
	n.meta = next
	return nil
}

// adoptFolders composes what serves replicas and judges the folders by the Image.
func (n *Node) adoptFolders(context.Context) error {
	im := n.controller.Image()
	if got, want := im.ClusterID(), n.controller.Identity().ClusterID; got != "" && got != want {
		return fmt.Errorf("the data folder %s belongs to cluster %s and its metadata to cluster %s: do not mix folders of two clusters", n.cfg.DataDir, want, got)
	}
	if im.Index() < n.meta.reconciled {
		return fmt.Errorf("the cluster's metadata ends at index %d, but the data in %s was written under index %d: metadata was lost, and judging the data by what is left could delete it; restore the raft folders of the other nodes, or start with another folder",
			im.Index(), n.cfg.DataDir, n.meta.reconciled)
	}
	n.compose()
	return n.reconciler.adopt(im)
}

// compose makes the parts that replicas need and connects them.
func (n *Node) compose() {
	ctl, session := n.controller, n.controller.Session()
	env := &environment{
		self: ctl.Identity().NodeID, epoch: session.Epoch, image: ctl.Image,
		now: time.Now, lagMax: n.cfg.ReplicaLagMax, log: n.log.Named("replica"),
		fresh:    func() bool { return session.Valid(controller.BootTime()) },
		bootTime: bootTime,
		fail:     n.fail,
		metrics:  &n.metrics.replicas,
		live:     liveIn(ctl.Image),
		replicas: newPartitions(), retention: n.cfg.Retention, compaction: n.cfg.Compaction, durability: n.cfg.Durability,
	}
	env.heardSince = func() time.Time { return bootTime().Add(-heardBeats * n.cfg.Heartbeat) }
	env.ticks = newTicks(env.now, func(p *Partition, now time.Time) { p.tick(now) })
	env.changes = newChanges(env, ctl, n.log.Named("isr"))
	n.env = env
	n.feeders = newFeeders(env, n.cfg.Heartbeat, n.cfg.Session, n.log.Named("feed"))
	env.heard = n.feeders.heard
	n.follows = newFollows(env, feedDialer{ctl, session}, &buffers{}, n.cfg.Session, n.log.Named("feed"))
	n.metrics.watchRecoveries(ctl.Recoveries)
	n.metrics.watchFollowers(ctl.Followers)
	n.keeper = newKeeper(env, ctl, n.recordIndex, n.log.Named("keeper"))
	env.damaged = n.keeper.damage
	n.disk = &diskWatch{
		calls: n.calls, limit: n.cfg.DiskTimeout, session: session, hung: &env.hung,
		cutOff: func() { n.server.cutOff() }, metrics: &n.metrics.disk, log: n.log.Named("disk"),
	}
	n.retention = newRetention(env, n.log.Named("retention"))
	n.groups = newGroups(groupsEnv{
		self: env.self, epoch: env.epoch, image: env.image, fresh: env.fresh, now: env.now,
		propose: ctl, metrics: &n.metrics.groups, log: n.log.Named("groups"),
	}, n.cfg.Groups)
	n.reconciler = newReconciler(env, ctl, n.dir, n.follows, n.feeders, n.keeper, n.log.Named("reconcile"))
	n.reconciler.slots = n.groups.slotsChanged
	n.reconciler.session = session.Settled
}

// bootTime is controller.BootTime as a time, for the cores that compare times.
func bootTime() time.Time { return time.Unix(0, int64(controller.BootTime())) }

// feedDialer opens feed connections under this node's present broker epoch.
type feedDialer struct {
	ctl     *controller.Node
	session *controller.Session
}

// DialFeed implements peerDialer.
func (d feedDialer) DialFeed(ctx context.Context, id fsm.BrokerID) (net.Conn, error) {
	return d.ctl.DialPeer(ctx, id, controller.KindFeed, d.session.Epoch())
}

// ReportRefused implements peerDialer.
func (d feedDialer) ReportRefused(id fsm.BrokerID) { d.ctl.ReportRefused(id) }

// join registers this node and gives every replica its role.
func (n *Node) join(ctx context.Context) error {
	var err error
	if n.advertised, err = n.clientAddress(); err != nil {
		return err
	}
	r := controller.Registration{Client: n.advertised, Rack: n.cfg.Rack, BootID: n.fsys.BootID()}
	if stop, clean := n.dir.PreviousStop(); clean {
		r.PrevCleanEpoch = fsm.BrokerEpoch(stop.BrokerEpoch)
	}
	if _, err := n.controller.Register(ctx, r); err != nil {
		if errors.Is(err, fsm.FolderInUse) {
			return fmt.Errorf("node id %d is in use by another node of this cluster: give each node its own id: %w", n.ID(), err)
		}
		return err
	}
	if err := n.reportDamaged(ctx); err != nil {
		return err
	}
	n.controller.HandleFeed(n.feeders.serve)
	n.controller.HandleLogEnds(n.reconciler.logEnds)
	n.reconciler.start(n.controller.Image())
	roles, stop := context.WithCancel(context.Background())
	n.stopRoles, n.started = stop, true
	go n.env.changes.run(roles)
	go n.keeper.run(roles)
	go n.reconciler.run(roles)
	go n.retention.run(roles)
	go n.groups.run(roles)
	n.controller.StartSession().WantUnfenced(true)
	return nil
}

// reportDamaged gives up the seats of replicas that recovery found damaged, or that have
// no folder, before this node can be elected for them.
func (n *Node) reportDamaged(ctx context.Context) error {
	damaged := n.reconciler.recall(n.controller.Image())
	for _, p := range n.env.replicas.All() {
		if p.log.Damaged() != nil {
			damaged = append(damaged, p.tp)
		}
	}
	if len(damaged) == 0 {
		return nil
	}
	n.log.Error("replicas are damaged, or their folders are gone, and will be fetched again from their leaders", "replicas", len(damaged))
	err := proposeTo(ctx, n.controller, fsm.ReportDamaged{Broker: n.env.self, BrokerEpoch: n.env.epoch(), Items: damaged})
	if err != nil {
		return fmt.Errorf("report damaged replicas: %w", err)
	}
	return nil
}

// serve opens the client port once this node is unfenced, so that the first
// Metadata answer names it.
func (n *Node) serve(ctx context.Context) error {
	if err := n.awaitUnfenced(ctx); err != nil {
		return err
	}
	ids := newProducerIDs(n.controller, n.controller.Image, func() (fsm.BrokerID, fsm.BrokerEpoch) { return n.env.self, n.env.epoch() })
	b := &backend{
		self: n.env.self, image: n.controller.Image, sync: n.controller.Sync, partition: n.replica, admin: topicDefaults{n.controller, n.cfg.MinInSync},
		controller: n.controller.Leader, producerID: ids.next, groups: n.groups, ops: n.operations(), metrics: n.metrics, log: n.log,
	}
	s, err := newServer(n.serverConfig(), b)
	if err != nil {
		return err
	}
	n.server = s
	n.disk.start()
	l := n.clientListener
	n.serving.Go(func() {
		if err := s.Serve(l); err != nil {
			n.fail(err)
		}
	})
	return nil
}

func (n *Node) serverConfig() serverConfig {
	c := defaultServerConfig()
	c.MaxRequestBytes = n.cfg.RequestMaxBytes
	c.RequestMemory = n.cfg.QueuedMaxBytes
	c.FetchMaxBytes = n.cfg.FetchMaxBytes
	c.FetchSessions = n.cfg.FetchSessions
	c.AutoCreateTopics = n.cfg.AutoCreateTopics
	c.Cleanup = n.cfg.Compaction.Policy
	c.MessageMaxBytes = n.cfg.MessageMaxBytes
	c.MaxConnections = n.cfg.MaxConnections
	c.MaxConnectionsPerIP = n.cfg.MaxConnectionsPerIP
	c.IdleTimeout = n.cfg.ConnectionsMaxIdle
	return c
}

// replica is what the handlers see of a replica, which know an absent one by a nil interface.
func (n *Node) replica(tp fsm.TopicPartition) replica {
	if p := n.env.reachable(tp); p != nil {
		return p
	}
	return nil
}

func (n *Node) awaitUnfenced(ctx context.Context) error {
	for {
		changed := n.controller.Changed()
		if b, ok := n.controller.Image().Broker(n.env.self); ok && !b.Fenced && b.Epoch == n.env.epoch() {
			return nil
		}
		select {
		case <-changed:
		case err := <-n.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("wait to be admitted by the controller: %w", ctx.Err())
		}
	}
}

// live reports what only a restart can cure.
func (n *Node) live() error {
	if !n.Ready() {
		return nil
	}
	return n.dir.Offline()
}

// fail says that the process must end. Only the first reason is kept.
func (n *Node) fail(reason error) {
	select {
	case n.failed <- reason:
	default:
	}
}

// ID is this node's id in its cluster.
func (n *Node) ID() int32 { return int32(n.controller.Identity().NodeID) }

// ClusterID names the cluster.
func (n *Node) ClusterID() string { return n.controller.Identity().ClusterID }

// Addr is the address that clients are told to use, host:port.
func (n *Node) Addr() string {
	return net.JoinHostPort(n.advertised.Host, fmt.Sprint(n.advertised.Port))
}

// AdminAddr is the address of the admin listener, nil when it is off.
func (n *Node) AdminAddr() net.Addr {
	if n.adminListener == nil {
		return nil
	}
	return n.adminListener.Addr()
}

// Ready tells whether the node serves clients.
func (n *Node) Ready() bool { return n.ready.Load() }

// Failed delivers the reason when the node can not go on and the process must end.
func (n *Node) Failed() <-chan error { return n.failed }

// serveAdmin starts the admin listener, which tells how far the boot has come.
func (n *Node) serveAdmin() {
	n.admin = newAdmin(adminConfig{
		Live:    n.live,
		Started: n.Ready,
		Ready: []healthCheck{
			{Name: "started", Check: func() error {
				if !n.Ready() {
					return errors.New("not started, or stopping")
				}
				return nil
			}},
			{Name: "session", Check: func() error {
				if n.Ready() && !n.env.fresh() {
					return errors.New("no heartbeat is acknowledged by a controller")
				}
				return nil
			}},
			{Name: "disk", Check: func() error {
				if !n.Ready() {
					return nil
				}
				return n.disk.check()
			}},
		},
		Routes: map[string]http.HandlerFunc{
			"GET /v1/groups":           n.whenReady(func(w http.ResponseWriter, r *http.Request) { n.groups.serveGroups(w, r) }),
			"GET /v1/groups/{name...}": n.whenReady(func(w http.ResponseWriter, r *http.Request) { n.groups.serveGroup(w, r) }),
		},
		Metrics: n.metrics, Log: n.log,
	})
	l, a := n.adminListener, n.admin
	n.serving.Go(func() {
		if err := a.Serve(l); err != nil {
			n.fail(err)
		}
	})
}

// whenReady keeps requests from parts that are not there yet.
func (n *Node) whenReady(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !n.Ready() {
			http.Error(w, "not started, or stopping", http.StatusServiceUnavailable)
			return
		}
		handle(w, r)
	}
}
