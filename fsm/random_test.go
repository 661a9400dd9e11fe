package fsm_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/integration/seeds"
	"github.com/weirmq/weir/wire/batch"
)

// TestRandomCommands applies random commands, most of them close to what the
// Image would accept, and checks after each that the invariants hold, that
// accepted items had their guards fulfilled, that epochs move as they should,
// and that encodings, snapshots and Diff are faithful.
func TestRandomCommands(t *testing.T) {
	seeds.Alone(t)
	rapid.Check(t, func(t *rapid.T) {
		im := fsm.NewImage()
		far, held := im, holders{}
		steps := rapid.Uint64Range(1, 80).Draw(t, "steps")
		for index := uint64(1); index <= steps; index++ {
			c := drawCommand(t, im)
			encoded := fsm.EncodeCommand(nil, c)
			decoded, err := fsm.DecodeCommand(encoded)
			if err != nil {
				t.Fatalf("decode %#v: %v", c, err)
			}
			if again := fsm.EncodeCommand(nil, decoded); !bytes.Equal(again, encoded) {
				t.Fatalf("%#v encodes as %x, decoded as %x", c, encoded, again)
			}
			next, r := fsm.Apply(im, index, decoded)
			if same, r2 := fsm.Apply(im, index, c); same.Hash() != next.Hash() || !reflect.DeepEqual(r, r2) {
				t.Fatalf("%#v gives %v, then %v", c, r, r2)
			}
			verifyQuick(t, im, next)
			checkGuards(t, im, next, c, r)
			checkEpochs(t, im, next)
			held.follow(t, im, next, c, r)
			checkElection(t, next)
			checkAsked(t, next)
			checkReassign(t, next)
			if rapid.IntRange(0, 9).Draw(t, "snapshot") == 0 {
				verify(t, im, next)
			}
			im = next
			switch rapid.IntRange(0, 9).Draw(t, "far") {
			case 0:
				checkDiff(t, far, im, fsm.Diff(far, im))
				checkDiff(t, im, far, fsm.Diff(im, far)) // not its descendant: every row is compared
			case 1:
				far = im
			}
		}
	})
}

// verifyQuick is the part of verify that is cheap.
func verifyQuick(t *rapid.T, old, im *fsm.Image) {
	if err := fsm.CheckImage(im); err != nil {
		t.Fatalf("index %d: %v", im.Index(), err)
	}
	if err := fsm.CheckMinISR(im); err != nil {
		t.Fatalf("index %d: %v", im.Index(), err)
	}
	checkDiff(t, old, im, fsm.Diff(old, im))
}

// checkEpochs compares each partition before and after: the leader epoch is
// raised exactly by changes of leader and when a replica leaves, the partition epoch by
// every change.
func checkEpochs(t *rapid.T, old, im *fsm.Image) {
	for topic := range im.Topics() {
		for i, p := range im.Partitions(topic.ID) {
			was, ok := old.Partition(fsm.TopicPartition{Topic: topic.ID, Partition: i})
			switch {
			case !ok:
			case p.LeaderEpoch < was.LeaderEpoch || p.PartitionEpoch < was.PartitionEpoch:
				t.Fatalf("%s-%d: epochs fall: %+v to %+v", topic.Name, i, was, p)
			case p.Leader != was.Leader && p.LeaderEpoch == was.LeaderEpoch:
				t.Fatalf("%s-%d: leader changes within an epoch: %+v to %+v", topic.Name, i, was, p)
			case p.Leader == was.Leader && p.LeaderEpoch != was.LeaderEpoch && inAll(was.Replicas, p.Replicas):
				t.Fatalf("%s-%d: another epoch of the same leader and replicas: %+v to %+v", topic.Name, i, was, p)
			case p.PartitionEpoch == was.PartitionEpoch && !reflect.DeepEqual(p, was):
				t.Fatalf("%s-%d: changes within a partition epoch: %+v to %+v", topic.Name, i, was, p)
			}
		}
	}
}

// inAll reports whether each of ids is in list.
func inAll(ids, list []fsm.BrokerID) bool {
	return !slices.ContainsFunc(ids, func(id fsm.BrokerID) bool { return !slices.Contains(list, id) })
}

// checkGuards states again, from the old Image, what an accepted command or item
// needed, and that a refused one changed nothing.
func checkGuards(t *rapid.T, old, im *fsm.Image, c fsm.Command, r fsm.Result) {
	if r.Err != nil {
		if im.Hash() != old.Hash() {
			t.Fatalf("%#v was refused (%v) but changed the Image", c, r.Err)
		}
		return
	}
	switch c := c.(type) {
	case fsm.FenceBroker:
		b, ok := old.Broker(c.ID)
		if !ok || b.Epoch != c.Epoch {
			t.Fatalf("%#v was accepted for %+v", c, b)
		}
	case fsm.RegisterBroker:
		b, ok := old.Broker(c.ID)
		if ok && b.Process == c.Process && b.Folder == c.Folder {
			if now, _ := im.Broker(c.ID); now != b || im.Hash() != old.Hash() || r.Epoch != int64(b.Epoch) {
				t.Fatalf("%#v came again and gives %+v after %+v, result %+v", c, now, b, r)
			}
			return
		}
		if b.Epoch != c.Replaces || ok && b.Folder != c.Folder && c.SessionLive {
			t.Fatalf("%#v was accepted over %+v", c, b)
		}
		if now, _ := im.Broker(c.ID); !now.Fenced || now.Epoch != fsm.BrokerEpoch(im.Index()) || r.Epoch != int64(now.Epoch) {
			t.Fatalf("%#v gives %+v, result %+v", c, now, r)
		}
	case fsm.CreateTopic:
		if _, taken := old.TopicByName(c.Name); taken {
			t.Fatalf("%#v was accepted over another topic", c)
		}
	case fsm.AdmitNode:
		if n, ok := old.Node(c.ID); ok && (n.Removed || n.Folder != c.Folder) {
			t.Fatalf("%#v was accepted over %+v", c, n)
		}
	case fsm.RemoveNode:
		b, registered := im.Broker(c.ID)
		n, _ := im.Node(c.ID)
		if registered || !n.Removed || n.Folder != c.Folder || c.Epoch == 0 && b.Epoch != 0 {
			t.Fatalf("%#v leaves %+v, %+v", c, n, b)
		}
		for range old.Hosted(c.ID) {
			t.Fatalf("%#v was accepted although it hosts replicas", c)
		}
	case fsm.ChangeISR:
		checkISRGuards(t, old, im, c, r)
	case fsm.ChangeLeaders:
		checkLeaderGuards(t, old, im, c, r)
	case fsm.ChangeReplicas:
		checkReplicaGuards(t, old, im, c, r)
	}
}

func checkISRGuards(t *rapid.T, old, im *fsm.Image, c fsm.ChangeISR, r fsm.Result) {
	for i, item := range c.Items {
		if slices.Contains(r.Skipped, i) {
			continue
		}
		p, ok := old.Partition(item.TP)
		if !ok || p.Leader != c.Proposer || p.LeaderEpoch != item.LeaderEpoch || p.PartitionEpoch != item.PartitionEpoch {
			t.Fatalf("item %+v of proposer %d was accepted for %+v", item, c.Proposer, p)
		}
		for _, m := range item.ISR {
			b, ok := old.Broker(m.ID)
			if !ok || b.Fenced || b.Stopping || b.Epoch != m.Epoch || !slices.Contains(p.Replicas, m.ID) {
				t.Fatalf("item %+v was accepted with member %+v", item, b)
			}
		}
		now, _ := im.Partition(item.TP)
		if len(now.ISR) != len(item.ISR) || now.LeaderEpoch != p.LeaderEpoch || now.PartitionEpoch != p.PartitionEpoch+1 {
			t.Fatalf("item %+v turns %+v into %+v", item, p, now)
		}
	}
}

func checkLeaderGuards(t *rapid.T, old, im *fsm.Image, c fsm.ChangeLeaders, r fsm.Result) {
	for i, item := range c.Items {
		if slices.Contains(r.Skipped, i) {
			continue
		}
		p, ok := old.Partition(item.TP)
		if !ok || p.LeaderEpoch != item.LeaderEpoch || p.PartitionEpoch != item.PartitionEpoch {
			t.Fatalf("item %+v was accepted for %+v", item, p)
		}
		for _, id := range item.ISR {
			if id != item.Leader && !slices.Contains(p.ISR, id) {
				t.Fatalf("item %+v brings %d into the ISR of %+v", item, id, p)
			}
		}
		if item.Leader == fsm.NoBroker {
			continue
		}
		clean := slices.Contains(p.ISR, item.Leader) || slices.Contains(p.ELR, item.Leader)
		if !old.Eligible(item.Leader) || !clean && !item.Recovering {
			t.Fatalf("item %+v was accepted for %+v", item, p)
		}
		if now, _ := im.Partition(item.TP); now.Leader != item.Leader || now.Recovering != (item.Recovering || p.Recovering) {
			t.Fatalf("item %+v turns %+v into %+v", item, p, now)
		}
	}
}

// checkElection checks that whatever elect wants is accepted, and that it then
// wants nothing more.
func checkElection(t *rapid.T, im *fsm.Image) {
	next, r := fsm.Apply(im, im.Index()+1, fsm.ChangeLeaders{Items: elect.Leaders(im)})
	if more := elect.Leaders(next); len(r.Skipped) > 0 || len(more) > 0 {
		t.Fatalf("elected with %+v, then wants %+v", r, more)
	}
	for b := range im.Brokers() {
		if !b.Stopping {
			continue
		}
		next, r := fsm.Apply(next, im.Index()+1, fsm.ChangeLeaders{Items: elect.HandOff(next, b.ID)})
		if more := elect.HandOff(next, b.ID); len(r.Skipped) > 0 || len(more) > 0 {
			t.Fatalf("hand-off of %d with %+v, then wants %+v", b.ID, r, more)
		}
		for tp, p := range next.Hosted(b.ID) {
			if p.Leader == b.ID && slices.ContainsFunc(p.ISR, next.Eligible) {
				t.Fatalf("%v: stopping broker %d still leads %+v", tp, b.ID, p)
			}
		}
	}
}

// holders is the model that justifies ISR and ELR: for each partition, the
// brokers that surely hold every committed record. At each step records may be
// committed wherever there is a leader and the ISR has its minimum, and then only
// ISR members are sure to hold them. Whoever joins the ISR has fetched all.
type holders map[fsm.TopicPartition][]fsm.BrokerID

func (h holders) follow(t *rapid.T, old, im *fsm.Image, c fsm.Command, r fsm.Result) {
	for topic := range im.Topics() {
		for i, p := range im.Partitions(topic.ID) {
			tp := fsm.TopicPartition{Topic: topic.ID, Partition: i}
			held := h[tp]
			if _, existed := old.Partition(tp); !existed {
				held = p.ISR
			}
			held = h.step(held, tp, p, old, c, r)
			for _, list := range [][]fsm.BrokerID{p.ISR, p.ELR} {
				for _, id := range list {
					if !slices.Contains(held, id) {
						t.Fatalf("%s-%d after %#v: broker %d may lead %+v, but only %v hold every committed record", topic.Name, i, c, id, p, held)
					}
				}
			}
			held = slices.DeleteFunc(slices.Clone(held), func(id fsm.BrokerID) bool { return !slices.Contains(p.Replicas, id) })
			if p.Leader != fsm.NoBroker && len(p.ISR) >= int(p.MinISR) && rapid.Bool().Draw(t, "commit") {
				held = p.ISR
			}
			h[tp] = held
		}
	}
}

// step is what c does to those who hold a partition's records.
func (h holders) step(held []fsm.BrokerID, tp fsm.TopicPartition, p fsm.Partition, old *fsm.Image, c fsm.Command, r fsm.Result) []fsm.BrokerID {
	without := func(id fsm.BrokerID) []fsm.BrokerID {
		return slices.DeleteFunc(slices.Clone(held), func(m fsm.BrokerID) bool { return m == id })
	}
	switch c := c.(type) {
	case fsm.RegisterBroker:
		was, ok := old.Broker(c.ID)
		before, _ := old.Partition(tp)
		flushed := before.Durability == fsm.DurabilityFsync && was.Folder == c.Folder
		if ok && r.Err == nil && was.Process != c.Process && !flushed && (was.Folder != c.Folder || was.BootID != c.BootID && c.PrevCleanEpoch != was.Epoch) {
			return without(c.ID)
		}
	case fsm.GiveUpBroker:
		if r.Err == nil {
			return without(c.ID)
		}
	case fsm.ReportDamaged:
		i := slices.Index(c.Items, tp)
		if r.Err == nil && i >= 0 && !slices.Contains(r.Skipped, i) {
			return without(c.Broker)
		}
	case fsm.ChangeISR:
		for i, item := range c.Items {
			if r.Err == nil && item.TP == tp && !slices.Contains(r.Skipped, i) {
				for _, m := range item.ISR {
					held = append(slices.Clone(held), m.ID)
				}
			}
		}
	case fsm.ChangeLeaders:
		for i, item := range c.Items {
			if item.TP == tp && item.Recovering && !slices.Contains(r.Skipped, i) {
				held = p.ISR // the leader's log is what counts now
			}
		}
	}
	return held
}

// drawCommand draws a command that has a fair chance to be accepted.
func drawCommand(t *rapid.T, im *fsm.Image) fsm.Command {
	switch rapid.SampledFrom([]string{"register", "register", "fence", "unfence", "unfence", "unfence", "stop", "create", "create",
		"delete", "confirm", "ids", "isr", "isr", "isr", "replicas", "replicas", "elect", "handoff", "leaders", "damaged", "alter", "grow", "init", "admit", "remove", "give up"}).Draw(t, "command") {
	case "register":
		return drawRegister(t, im)
	case "fence":
		id := drawBroker(t)
		return fsm.FenceBroker{ID: id, Epoch: drawEpoch(t, im, id)}
	case "unfence":
		id := drawBroker(t)
		return fsm.UnfenceBroker{ID: id, Epoch: drawEpoch(t, im, id)}
	case "admit":
		id := drawBroker(t)
		return fsm.AdmitNode{ID: id, Folder: drawFolder(t, im, id), Peer: fsm.Endpoint{Host: "p", Port: int32(rapid.IntRange(1, 2).Draw(t, "port"))}}
	case "remove":
		return drawRemove(t, im)
	case "give up":
		id := drawBroker(t)
		return fsm.GiveUpBroker{ID: id, Epoch: drawEpoch(t, im, id)}
	case "stop":
		id := drawBroker(t)
		return fsm.StopBroker{ID: id, Epoch: drawEpoch(t, im, id)}
	case "create":
		return drawCreate(t, im)
	case "delete":
		return fsm.DeleteTopic{ID: drawTopic(t, im)}
	case "confirm":
		id := drawBroker(t)
		return fsm.ConfirmDeleted{Broker: id, BrokerEpoch: drawEpoch(t, im, id),
			Topics: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fsm.TopicID { return drawTopic(t, im) }), 0, 3).Draw(t, "topics")}
	case "ids":
		id := drawBroker(t)
		return fsm.AllocateProducerIDs{Broker: id, BrokerEpoch: drawEpoch(t, im, id), Count: int32(rapid.IntRange(-1, 9).Draw(t, "count")),
			First: im.NextProducerID() + int64(drawSlip(t))}
	case "isr":
		return drawISR(t, im)
	case "elect":
		return fsm.ChangeLeaders{Items: elect.Leaders(im)}
	case "handoff":
		return fsm.ChangeLeaders{Items: elect.HandOff(im, drawBroker(t))}
	case "leaders":
		return drawLeaders(t, im)
	case "alter":
		return drawAlter(t, im)
	case "grow":
		return drawGrow(t, im)
	case "replicas":
		return drawReplicas(t, im)
	case "damaged":
		id := drawBroker(t)
		return fsm.ReportDamaged{Broker: id, BrokerEpoch: drawEpoch(t, im, id), Items: drawPartitions(t, im)}
	}
	return fsm.InitCluster{ClusterID: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "cluster")}
}

func drawBroker(t *rapid.T) fsm.BrokerID {
	return fsm.BrokerID(rapid.IntRange(0, 6).Draw(t, "broker"))
}

// drawSlip is 0 most of the time.
func drawSlip(t *rapid.T) int {
	return rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, -1, 1}).Draw(t, "slip")
}

func drawEpoch(t *rapid.T, im *fsm.Image, id fsm.BrokerID) fsm.BrokerEpoch {
	b, _ := im.Broker(id)
	return b.Epoch + fsm.BrokerEpoch(drawSlip(t))
}

// drawFolder is that of the broker more often than not.
func drawFolder(t *rapid.T, im *fsm.Image, id fsm.BrokerID) [16]byte {
	if b, ok := im.Broker(id); ok && rapid.IntRange(0, 3).Draw(t, "other folder") > 0 {
		return b.Folder
	}
	return [16]byte{rapid.SampledFrom([]byte{1, 2, 0}).Draw(t, "folder"), byte(rapid.IntRange(0, 3).Draw(t, "of"))}
}

func drawRemove(t *rapid.T, im *fsm.Image) fsm.Command {
	id := drawBroker(t)
	return fsm.RemoveNode{ID: id, Folder: drawFolder(t, im, id), Epoch: drawEpoch(t, im, id)}
}

func drawRegister(t *rapid.T, im *fsm.Image) fsm.Command {
	id := drawBroker(t)
	c := fsm.RegisterBroker{
		ID: id, BootID: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "boot"),
		PrevCleanEpoch: drawEpoch(t, im, id), Replaces: drawEpoch(t, im, id), SessionLive: rapid.Bool().Draw(t, "live"),
	}
	if rapid.Bool().Draw(t, "crash") {
		c.PrevCleanEpoch = 0
	}
	c.Folder[0] = rapid.SampledFrom([]byte{1, 1, 1, 2, 0}).Draw(t, "folder")
	if n, ok := im.Node(id); ok && rapid.Bool().Draw(t, "own folder") {
		c.Folder = n.Folder
	}
	c.Process[0] = byte(rapid.IntRange(0, 40).Draw(t, "process"))
	return c
}

func drawTopic(t *rapid.T, im *fsm.Image) fsm.TopicID {
	known := []fsm.TopicID{topicID(rapid.SampledFrom([]string{"i", "j", "k", ""}).Draw(t, "topic"))}
	for topic := range im.Topics() {
		known = append(known, topic.ID)
	}
	for tomb := range im.Tombstones() {
		known = append(known, tomb.ID)
	}
	return rapid.SampledFrom(known).Draw(t, "known topic")
}

func drawCreate(t *rapid.T, im *fsm.Image) fsm.Command {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
	c := fsm.CreateTopic{ID: topicID(name + rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "id")), Name: name}
	n := rapid.SampledFrom([]int{1, 2, 3, 63, 64, 65, 130}).Draw(t, "partitions")
	replicas := rapid.IntRange(1, 4).Draw(t, "replicas")
	if lists, err := elect.Place(im, n, replicas, rapid.Uint64().Draw(t, "seed")); err == nil {
		for _, list := range lists {
			np, _ := elect.Initial(im, list)
			c.Partitions = append(c.Partitions, np)
		}
	} else {
		c.Partitions = []fsm.NewPartition{{Replicas: drawSet(t), ISR: drawSet(t), Leader: drawBroker(t)}}
	}
	if rapid.Bool().Draw(t, "configured") {
		c.Configs = [][2]string{{fsm.MinInsyncReplicas, fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "min"))}}
	}
	return c
}

func drawSet(t *rapid.T) []fsm.BrokerID {
	return rapid.SliceOfN(rapid.Custom(drawBroker), 0, 4).Draw(t, "set")
}

// drawPartitions draws partitions that exist, each once.
func drawPartitions(t *rapid.T, im *fsm.Image) []fsm.TopicPartition {
	var all []fsm.TopicPartition
	for topic := range im.Topics() {
		for i := range min(topic.Partitions, 3) {
			all = append(all, fsm.TopicPartition{Topic: topic.ID, Partition: i})
		}
		all = append(all, fsm.TopicPartition{Topic: topic.ID, Partition: topic.Partitions - 1})
	}
	slices.SortFunc(all, func(a, b fsm.TopicPartition) int { return bytes.Compare(fmt.Append(nil, a), fmt.Append(nil, b)) })
	all = slices.Compact(all)
	if len(all) == 0 {
		return []fsm.TopicPartition{{Partition: int32(rapid.IntRange(-1, 1).Draw(t, "partition"))}}
	}
	return rapid.Permutation(all).Draw(t, "partitions")[:rapid.IntRange(1, len(all)).Draw(t, "count")]
}

func drawISR(t *rapid.T, im *fsm.Image) fsm.Command {
	proposer := drawBroker(t)
	tps := drawPartitions(t, im)
	if p, ok := im.Partition(tps[0]); ok && p.Leader != fsm.NoBroker {
		proposer = p.Leader
	}
	c := fsm.ChangeISR{Proposer: proposer, BrokerEpoch: drawEpoch(t, im, proposer)}
	for _, tp := range tps {
		p, _ := im.Partition(tp)
		item := fsm.ISRChange{TP: tp, LeaderEpoch: p.LeaderEpoch + batch.Epoch(drawSlip(t)), PartitionEpoch: p.PartitionEpoch + fsm.PartitionEpoch(drawSlip(t))}
		for _, id := range append([]fsm.BrokerID{proposer}, p.Replicas...) {
			if id == proposer && len(item.ISR) > 0 || id != proposer && rapid.Bool().Draw(t, "leave out") {
				continue
			}
			item.ISR = append(item.ISR, fsm.Member{ID: id, Epoch: drawEpoch(t, im, id)})
		}
		item.Durability = fsm.Durability(rapid.IntRange(0, 1).Draw(t, "durability"))
		item.Confirms = rapid.Bool().Draw(t, "confirms")
		c.Items = append(c.Items, item)
	}
	return c
}

func drawLeaders(t *rapid.T, im *fsm.Image) fsm.Command {
	var c fsm.ChangeLeaders
	for _, tp := range drawPartitions(t, im) {
		p, _ := im.Partition(tp)
		item := fsm.LeaderChange{TP: tp, LeaderEpoch: p.LeaderEpoch + batch.Epoch(drawSlip(t)), PartitionEpoch: p.PartitionEpoch + fsm.PartitionEpoch(drawSlip(t)),
			Leader: fsm.NoBroker, Recovering: rapid.Bool().Draw(t, "recovering")}
		if len(p.Replicas) > 0 {
			item.Leader = rapid.SampledFrom(append([]fsm.BrokerID{fsm.NoBroker}, p.Replicas...)).Draw(t, "leader")
		}
		for _, id := range p.Replicas {
			member := slices.Contains(p.ISR, id) || drawSlip(t) != 0
			if member && id != item.Leader && !item.Recovering && rapid.Bool().Draw(t, "keep") {
				item.ISR = append(item.ISR, id)
			}
		}
		if item.Leader != fsm.NoBroker {
			item.ISR = append(item.ISR, item.Leader)
		}
		c.Items = append(c.Items, item)
	}
	return c
}
