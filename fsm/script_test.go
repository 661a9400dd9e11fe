package fsm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/weirmq/weir/controller/elect"
	"github.com/weirmq/weir/fsm"
	"github.com/weirmq/weir/wire/batch"
)

// TestScripts runs the scripts of testdata. Each step applies one command (or
// asks the election for some) and prints the answer and the whole state. Every
// command goes through its encoding, and every Image through the checks of the
// invariants, a snapshot and Diff.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t, im: fsm.NewImage()}
		datadriven.RunTest(t, path, s.step)
	})
}

// script is the state of one file.
type script struct {
	t     *testing.T
	d     *datadriven.TestData
	im    *fsm.Image
	index uint64
	done  []doneCommand
}

func (s *script) step(t *testing.T, d *datadriven.TestData) string {
	s.t, s.d = t, d
	switch d.Cmd {
	case "elect":
		return s.propose(fsm.ChangeLeaders{Items: elect.Leaders(s.im)})
	case "handoff":
		return s.propose(fsm.ChangeLeaders{Items: elect.HandOff(s.im, s.broker("id"))})
	case "preferred", "unclean":
		return s.asked()
	case "reassign":
		return s.reassign()
	case "finish":
		return s.finish()
	case "undecided":
		out := ""
		for _, tp := range elect.Undecided(s.im) {
			out += s.tpName(tp) + "\n"
		}
		return out
	case "recover":
		return s.propose(fsm.ChangeLeaders{Items: s.recoveries()})
	case "checkisr":
		c := s.changeISR()
		return fmt.Sprintln(elect.CheckISR(s.im, fsm.Member{ID: c.Proposer, Epoch: c.BrokerEpoch}, c.Items[0]))
	case "brokers":
		return s.brokers()
	case "giveup":
		given := fsm.GiveUp(s.im, ids(strings.Join(s.words("ids"), ","))...)
		for _, id := range ids(strings.Join(s.words("ids"), ",")) {
			b, _ := s.im.Broker(id)
			s.apply(fsm.GiveUpBroker{ID: id, Epoch: b.Epoch})
		}
		if show(s.im) != show(given) {
			s.t.Fatalf("%s: the commands give\n%s, GiveUp\n%s", s.d.Pos, show(s.im), show(given))
		}
		return show(s.im)
	case "agree":
		return s.agree()
	case "without":
		return s.without(int(s.number("command", 0)))
	case "again":
		s.index-- // the next command shares its entry with the one before
		return ""
	}
	return s.apply(s.command())
}

// brokers registers and unfences brokers 1 to n, all registrations first.
func (s *script) brokers() string {
	n := fsm.BrokerID(s.number("n", 3))
	out := ""
	for id := fsm.BrokerID(1); id <= n; id++ {
		out = s.apply(fsm.RegisterBroker{ID: id, Folder: [16]byte(topicID(fmt.Sprintf("folder%d", id))), Process: process("", 0), BootID: "boot1"})
	}
	for id := fsm.BrokerID(1); id <= n; id++ {
		out = s.apply(fsm.UnfenceBroker{ID: id, Epoch: fsm.BrokerEpoch(id)})
	}
	return out
}

// propose prints what the election wants, then applies it.
func (s *script) propose(c fsm.ChangeLeaders) string {
	var out strings.Builder
	for _, item := range c.Items {
		fmt.Fprintf(&out, "decides %s leader %d isr %s%s\n", s.tpName(item.TP), item.Leader, idList(item.ISR), flag(" recovering", item.Recovering))
	}
	return out.String() + s.apply(c)
}

// command builds the command that the step names.
func (s *script) command() fsm.Command {
	switch s.d.Cmd {
	case "init":
		return fsm.InitCluster{ClusterID: s.text("id", "")}
	case "register":
		return s.register()
	case "fence":
		return fsm.FenceBroker{ID: s.broker("id"), Epoch: s.epochOf("id")}
	case "unfence":
		return fsm.UnfenceBroker{ID: s.broker("id"), Epoch: s.epochOf("id")}
	case "admit":
		return fsm.AdmitNode{ID: s.broker("id"), Folder: s.folder(), Peer: fsm.Endpoint{Host: s.text("at", "p"), Port: 9093}}
	case "remove":
		return fsm.RemoveNode{ID: s.broker("id"), Folder: s.folder(), Epoch: s.epochOf("id")}
	case "stop":
		return fsm.StopBroker{ID: s.broker("id"), Epoch: s.epochOf("id")}
	case "create":
		return s.create()
	case "delete":
		return fsm.DeleteTopic{ID: topicID(s.text("id", ""))}
	case "confirm":
		var ids []fsm.TopicID
		for _, name := range s.words("topics") {
			ids = append(ids, topicID(name))
		}
		return fsm.ConfirmDeleted{Broker: s.broker("id"), BrokerEpoch: s.epochOf("id"), Topics: ids}
	case "block":
		return fsm.AllocateProducerIDs{Broker: s.broker("id"), BrokerEpoch: s.epochOf("id"),
			First: s.number("first", s.im.NextProducerID()), Count: int32(s.number("count", 1000))}
	case "damaged":
		c := fsm.ReportDamaged{Broker: s.broker("id"), BrokerEpoch: s.epochOf("id")}
		for _, name := range s.words("partitions") {
			c.Items = append(c.Items, s.tp(name))
		}
		return c
	case "alter":
		return s.alter()
	case "grow":
		return s.grow()
	case "assign":
		return s.assign()
	case "slot":
		return s.slotCommand()
	case "isr":
		return s.changeISR()
	case "replicas":
		return s.changeReplicas()
	case "leaders":
		return s.changeLeaders()
	}
	s.t.Fatalf("%s: unknown step %q", s.d.Pos, s.d.Cmd)
	return nil
}

// process is the nonce of a process that a script names, or of a new one.
func process(name string, index uint64) [16]byte {
	if name == "" {
		name = fmt.Sprintf("process%d", index)
	}
	return [16]byte(topicID(name))
}

// register is the registration of a new process, unless the step names one.
func (s *script) register() fsm.Command {
	id := s.broker("id")
	cur, _ := s.im.Broker(id)
	return fsm.RegisterBroker{
		ID: id, Folder: s.folder(),
		Process: process(s.text("process", ""), s.index+1), BootID: s.text("boot", "boot1"),
		Client: fsm.Endpoint{Host: fmt.Sprintf("c%d", id), Port: 9092}, Peer: fsm.Endpoint{Host: fmt.Sprintf("p%d", id), Port: 9093},
		PrevCleanEpoch: fsm.BrokerEpoch(s.number("clean", 0)),
		Replaces:       fsm.BrokerEpoch(s.number("replaces", int64(cur.Epoch))),
		SessionLive:    s.d.HasArg("live"),
	}
}

// folder is the step's folder, else that of the broker.
func (s *script) folder() [16]byte {
	return [16]byte(topicID(s.text("folder", fmt.Sprintf("folder%d", s.broker("id")))))
}

func (s *script) create() fsm.Command {
	name := s.text("name", "")
	c := fsm.CreateTopic{ID: topicID(s.text("id", name)), Name: name}
	for _, kv := range s.words("configs") {
		k, v, _ := strings.Cut(kv, ":")
		c.Configs = append(c.Configs, [2]string{k, v})
	}
	for _, line := range s.lines() {
		np, _ := elect.Initial(s.im, ids(line.get("replicas")))
		np.Replicas = ids(line.get("replicas"))
		if line.has("isr") {
			np.ISR = ids(line.get("isr"))
		}
		if line.has("leader") {
			np.Leader = ids(line.get("leader"))[0]
		}
		c.Partitions = append(c.Partitions, np)
	}
	return c
}

func (s *script) changeISR() fsm.ChangeISR {
	c := fsm.ChangeISR{Proposer: s.broker("id"), BrokerEpoch: s.epochOf("id")}
	for _, line := range s.lines() {
		tp := s.tp(line.name)
		p, _ := s.im.Partition(tp)
		item := fsm.ISRChange{TP: tp, LeaderEpoch: batch.Epoch(line.number("le", int64(p.LeaderEpoch))),
			PartitionEpoch: fsm.PartitionEpoch(line.number("pe", int64(p.PartitionEpoch)))}
		for _, m := range strings.Split(line.get("isr"), ",") {
			id, epoch, fixed := strings.Cut(m, "@")
			member := fsm.Member{ID: ids(id)[0]}
			b, _ := s.im.Broker(member.ID)
			member.Epoch = b.Epoch
			if fixed {
				member.Epoch = fsm.BrokerEpoch(atoi(s.t, epoch))
			}
			item.ISR = append(item.ISR, member)
		}
		if item.Durability = p.Durability; line.has("durability") {
			item.Durability = map[string]fsm.Durability{"replicated": fsm.DurabilityReplicated, "fsync": fsm.DurabilityFsync}[line.get("durability")]
		}
		item.Confirms = line.has("confirms")
		c.Items = append(c.Items, item)
	}
	return c
}

func (s *script) changeLeaders() fsm.Command {
	var c fsm.ChangeLeaders
	for _, line := range s.lines() {
		tp := s.tp(line.name)
		p, _ := s.im.Partition(tp)
		c.Items = append(c.Items, fsm.LeaderChange{
			TP: tp, LeaderEpoch: batch.Epoch(line.number("le", int64(p.LeaderEpoch))),
			PartitionEpoch: fsm.PartitionEpoch(line.number("pe", int64(p.PartitionEpoch))),
			Leader:         fsm.BrokerID(line.number("leader", -1)), ISR: ids(line.get("isr")), Recovering: line.has("recovering"),
		})
	}
	return c
}

// recoveries asks for the last-members election of each line's partition, with
// the log ends given as broker:epoch:end, with :damaged where a log is.
func (s *script) recoveries() []fsm.LeaderChange {
	var out []fsm.LeaderChange
	for _, line := range s.lines() {
		tp := s.tp(line.name)
		p, _ := s.im.Partition(tp)
		if c, ok := elect.Recover(s.im, tp, p, s.logEnds(line.get("ends"))); ok {
			out = append(out, c)
		}
	}
	return out
}

func (s *script) logEnds(list string) []elect.LogEnd {
	var ends []elect.LogEnd
	for _, e := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		f := strings.Split(e, ":")
		ends = append(ends, elect.LogEnd{Broker: ids(f[0])[0], Epoch: batch.Epoch(atoi(s.t, f[1])), End: batch.Offset(atoi(s.t, f[2])), Damaged: len(f) > 3})
	}
	return ends
}

// apply sends c through its encoding into the Image and prints what came of it.
func (s *script) apply(c fsm.Command) string {
	s.index++
	decoded, err := fsm.DecodeCommand(fsm.EncodeCommand(nil, c))
	if err != nil {
		s.t.Fatalf("%s: decode: %v", s.d.Pos, err)
	}
	old := s.im
	var r fsm.Result
	s.im, r = fsm.Apply(old, s.index, decoded)
	s.done = append(s.done, doneCommand{s.index, fsm.EncodeCommand(nil, c), s.im})
	verify(s.t, old, s.im)
	var out strings.Builder
	switch {
	case r.Err != nil:
		fmt.Fprintf(&out, "refused: %v\n", r.Err)
	case r.Epoch != 0:
		fmt.Fprintf(&out, "ok: %d\n", r.Epoch)
	default:
		out.WriteString("ok\n")
	}
	for i, item := range r.Skipped {
		fmt.Fprintf(&out, "item %d: %v\n", item, r.Why[i])
	}
	for i, err := range r.Items {
		if err != nil {
			fmt.Fprintf(&out, "change %d: %v\n", i, err)
		}
	}
	out.WriteString(flag("repeated\n", r.Repeated))
	return out.String() + show(s.im)
}

// verify checks what must hold after every step.
func verify(t rapid.TB, old, im *fsm.Image) {
	t.Helper()
	if err := fsm.CheckImage(im); err != nil {
		t.Fatalf("index %d: %v", im.Index(), err)
	}
	if err := fsm.CheckMinISR(im); err != nil {
		t.Fatalf("index %d: %v", im.Index(), err)
	}
	if err := fsm.CheckImage(old); err != nil {
		t.Fatalf("the Image before index %d changed: %v", im.Index(), err)
	}
	var snapshot bytes.Buffer
	if err := fsm.WriteSnapshot(&snapshot, im); err != nil {
		t.Fatal(err)
	}
	restored, err := fsm.ReadSnapshot(&snapshot)
	if err != nil {
		t.Fatalf("index %d: %v", im.Index(), err)
	}
	if err := fsm.CheckImage(restored); err != nil {
		t.Fatalf("index %d, restored: %v", im.Index(), err)
	}
	if show(restored) != show(im) || restored.Index() != im.Index() || restored.Hash() != im.Hash() {
		t.Fatalf("index %d: restored\n%swant\n%s", im.Index(), show(restored), show(im))
	}
	if d := fsm.Diff(im, restored); !d.Empty() {
		t.Fatalf("index %d: restored Image differs: %+v", im.Index(), d)
	}
	checkDiff(t, old, im, fsm.Diff(old, im))
	checkDiff(t, old, restored, fsm.Diff(old, restored))
}

// checkDiff applies d to old's content and compares it with new's.
func checkDiff(t rapid.TB, old, new *fsm.Image, d fsm.Delta) {
	t.Helper()
	rows := rowsOf(old)
	for _, pd := range d.Partitions {
		key := fmt.Sprintf("%x-%d", pd.TP.Topic, pd.TP.Partition)
		if pd.Old == nil != (rows[key] == "") || pd.Old != nil && rows[key] != fmt.Sprint(*pd.Old) {
			t.Fatalf("delta of %s has old %v, want %s", key, pd.Old, rows[key])
		}
		delete(rows, key)
		if pd.New != nil {
			rows[key] = fmt.Sprint(*pd.New)
		}
	}
	want := rowsOf(new)
	for _, id := range d.Brokers {
		delete(rows, fmt.Sprint("broker ", id))
		if b, ok := new.Broker(id); ok {
			rows[fmt.Sprint("broker ", id)] = fmt.Sprint(b)
		}
	}
	for _, id := range d.Topics {
		delete(rows, fmt.Sprintf("topic %x", id))
		if t, ok := new.Topic(id); ok {
			rows[fmt.Sprintf("topic %x", id)] = fmt.Sprint(*t)
		}
	}
	for _, s := range d.Slots {
		rows[fmt.Sprint("slot ", s.Slot)] = fmt.Sprint(s.New.Owner, s.New.Epoch)
	}
	for _, b := range d.Buried {
		rows[fmt.Sprintf("tombstone %x", b.ID)] = fmt.Sprint(b)
	}
	for _, id := range d.Cleared {
		delete(rows, fmt.Sprintf("tombstone %x", id))
	}
	for key := range rows {
		if rows[key] != want[key] {
			t.Fatalf("Diff applied to the old Image gives %s = %q, want %q", key, rows[key], want[key])
		}
	}
	if len(rows) != len(want) {
		t.Fatalf("Diff applied to the old Image gives %d rows, want %d", len(rows), len(want))
	}
}

// rowsOf prints every row of an Image under its key.
func rowsOf(im *fsm.Image) map[string]string {
	rows := map[string]string{}
	for b := range im.Brokers() {
		rows[fmt.Sprint("broker ", b.ID)] = fmt.Sprint(b)
	}
	for i := range int32(fsm.Slots) {
		rows[fmt.Sprint("slot ", i)] = fmt.Sprint(im.Slot(i).Owner, im.Slot(i).Epoch)
	}
	for t := range im.Topics() {
		rows[fmt.Sprintf("topic %x", t.ID)] = fmt.Sprint(*t)
		for i, p := range im.Partitions(t.ID) {
			rows[fmt.Sprintf("%x-%d", t.ID, i)] = fmt.Sprint(p)
		}
	}
	for t := range im.Tombstones() {
		rows[fmt.Sprintf("tombstone %x", t.ID)] = fmt.Sprint(t)
	}
	return rows
}

// show prints an Image.
func show(im *fsm.Image) string {
	var out strings.Builder
	if im.ClusterID() != "" {
		fmt.Fprintf(&out, "cluster %s\n", im.ClusterID())
	}
	for b := range im.Brokers() {
		fmt.Fprintf(&out, "broker %d@%d%s%s\n", b.ID, b.Epoch, flag(" fenced", b.Fenced), flag(" stopping", b.Stopping))
	}
	for n := range im.Nodes() {
		fmt.Fprintf(&out, "node %d in %s at %s:%d%s\n", n.ID, idName(fsm.TopicID(n.Folder)), n.Peer.Host, n.Peer.Port, flag(" removed", n.Removed))
	}
	for t := range im.Topics() {
		for i, p := range im.Partitions(t.ID) {
			fmt.Fprintf(&out, "%s-%d replicas %s leader %d le %d pe %d isr %s min %d", t.Name, i, idList(p.Replicas), p.Leader, p.LeaderEpoch, p.PartitionEpoch, idList(p.ISR), p.MinISR)
			if len(p.ELR) > 0 {
				fmt.Fprintf(&out, " elr %s", idList(p.ELR))
			}
			if len(p.LastMembers) > 0 {
				fmt.Fprintf(&out, " last %s", idList(p.LastMembers))
			}
			fmt.Fprintf(&out, "%s%s%s\n", flag(" fsync", p.Durability == fsm.DurabilityFsync), flag(" recovering", p.Recovering), reassignment(p))
		}
	}
	for t := range im.Tombstones() {
		fmt.Fprintf(&out, "tombstone %s of %s pending %s\n", idName(t.ID), t.Name, idList(t.Pending))
	}
	if im.NextProducerID() != 0 {
		fmt.Fprintf(&out, "next producer id %d\n", im.NextProducerID())
	}
	out.WriteString(showGroups(im))
	return out.String()
}

// line is one line of a step's input: a name, then key=value.
type line struct {
	t    *testing.T
	name string
	args map[string]string
}

func (s *script) lines() []line {
	var out []line
	for _, text := range strings.Split(strings.TrimSpace(s.d.Input), "\n") {
		l := line{t: s.t, args: map[string]string{}}
		for i, f := range strings.Fields(text) {
			k, v, ok := strings.Cut(f, "=")
			if i == 0 && !ok {
				l.name = f
				continue
			}
			l.args[k] = v
		}
		out = append(out, l)
	}
	return out
}

func (l line) has(key string) bool   { _, ok := l.args[key]; return ok }
func (l line) get(key string) string { return l.args[key] }
func (l line) number(key string, otherwise int64) int64 {
	if !l.has(key) {
		return otherwise
	}
	return atoi(l.t, l.get(key))
}

func (s *script) words(key string) []string {
	i := slices.IndexFunc(s.d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
	if i < 0 {
		return nil
	}
	return s.d.CmdArgs[i].Vals
}

func (s *script) text(key, otherwise string) string {
	if w := s.words(key); len(w) > 0 {
		return w[0]
	}
	return otherwise
}

func (s *script) number(key string, otherwise int64) int64 {
	if w := s.words(key); len(w) > 0 {
		return atoi(s.t, w[0])
	}
	return otherwise
}

func (s *script) broker(key string) fsm.BrokerID { return fsm.BrokerID(s.number(key, 0)) }

// epochOf is the step's epoch, else the present one of the broker.
func (s *script) epochOf(key string) fsm.BrokerEpoch {
	b, _ := s.im.Broker(s.broker(key))
	return fsm.BrokerEpoch(s.number("epoch", int64(b.Epoch)))
}

// tp reads a name like t-0; the topic is known by name, else by id.
func (s *script) tp(name string) fsm.TopicPartition {
	i := strings.LastIndexByte(name, '-')
	tp := fsm.TopicPartition{Topic: topicID(name[:i]), Partition: int32(atoi(s.t, name[i+1:]))}
	if t, ok := s.im.TopicByName(name[:i]); ok {
		tp.Topic = t.ID
	}
	return tp
}

func (s *script) tpName(tp fsm.TopicPartition) string {
	t, _ := s.im.Topic(tp.Topic)
	return fmt.Sprintf("%s-%d", t.Name, tp.Partition)
}

func topicID(name string) (id fsm.TopicID) {
	copy(id[:], name)
	return id
}

func idName(id fsm.TopicID) string { return strings.TrimRight(string(id[:]), "\x00") }

func ids(list string) []fsm.BrokerID {
	if list == "" {
		return nil
	}
	var out []fsm.BrokerID
	for _, f := range strings.Split(list, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			panic(err)
		}
		out = append(out, fsm.BrokerID(n))
	}
	return out
}

func idList(list []fsm.BrokerID) string {
	if len(list) == 0 {
		return "none"
	}
	s := make([]string, len(list))
	for i, id := range list {
		s[i] = strconv.Itoa(int(id))
	}
	return strings.Join(s, ",")
}

func flag(text string, on bool) string {
	if on {
		return text
	}
	return ""
}

func atoi(t testing.TB, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
