package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/weirmq/weir/fsm"
)

// Kind says what a peer connection is for.
type Kind uint8

const (
	// KindForm asks a node what it is before there is a cluster; it alone carries no cluster id.
	KindForm Kind = 1
	// KindRaft carries Raft's own calls.
	KindRaft Kind = 2
	// KindControl carries calls to the controller: register, heartbeat, propose and the like.
	KindControl Kind = 3
	// KindFeed carries partition data from a leader to a follower.
	KindFeed Kind = 4
	// KindJoin asks to be admitted to a cluster that the dialler knows the id of; it has no
	// node id yet.
	KindJoin Kind = 5
)

// String names the kind for logs.
func (k Kind) String() string {
	switch k {
	case KindForm:
		return "form"
	case KindRaft:
		return "raft"
	case KindControl:
		return "control"
	case KindFeed:
		return "feed"
	case KindJoin:
		return "join"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// hasEpoch tells whether a preface of this kind carries a broker epoch.
func (k Kind) hasEpoch() bool { return k == KindControl || k == KindFeed }

// Preface is what the dialling side of a peer connection says first.
type Preface struct {
	// Kind is what the connection is for.
	Kind Kind
	// ClusterID is the dialler's cluster; empty on KindForm only.
	ClusterID string
	// NodeID is the dialler's node id; 0 while it has none.
	NodeID fsm.BrokerID
	// Folder is the UUID of the dialler's data folder.
	Folder [16]byte
	// BrokerEpoch is the dialler's incarnation, on KindFeed and KindControl; 0 before registration.
	BrokerEpoch fsm.BrokerEpoch
}

// RefusalCode says why a peer connection was refused.
type RefusalCode uint8

const (
	accepted RefusalCode = 0
	// RefusedVersion means that the two sides speak different versions of the peer protocol.
	RefusedVersion RefusalCode = 1
	// RefusedKind means that the answering node does not know or serve the kind.
	RefusedKind RefusalCode = 2
	// RefusedCluster means that the two nodes belong to different clusters.
	RefusedCluster RefusalCode = 3
	// RefusedNode means that the dialler's node id is not one it may use here.
	RefusedNode RefusalCode = 4
	// RefusedEpoch means that the dialler presents a broker epoch that is over.
	RefusedEpoch RefusalCode = 5
	// RefusedNotReady means that the answering node is still starting; try again.
	RefusedNotReady RefusalCode = 6
	// RefusedRemoved means that the dialler has been taken out of the cluster for good.
	RefusedRemoved RefusalCode = 7
)

// RefusedError is the other side's refusal of a peer connection.
type RefusedError struct {
	// Code is the reason in a form that programs read.
	Code RefusalCode
	// Sentence is the reason in a form that people read, as the other side put it.
	Sentence string
}

// Error gives the other side's sentence.
func (e *RefusedError) Error() string { return "peer refused the connection: " + e.Sentence }

// answer is what the accepting side says back.
type answer struct {
	code      RefusalCode
	clusterID string
	nodeID    fsm.BrokerID
	folder    [16]byte
	sentence  string
}

// Both messages start with the same 8 bytes, which no version may change:
// magic, version, kind or code, and the length of what follows.
const (
	prefaceMagic     = "WEIR"
	prefaceVersion   = 1
	prefaceHeadSize  = 8
	prefaceBodyMax   = 1024
	clusterIDSizeMax = 64
	sentenceSizeMax  = 768
)

// errNotPeer means that the other side does not speak the peer protocol at all.
var errNotPeer = errors.New("not Weir's peer protocol")

// garbageError is errNotPeer with the bytes that gave it away.
type garbageError struct{ head []byte }

func (e *garbageError) Error() string {
	return fmt.Sprintf("%v: it looks like %s (first bytes %q)", errNotPeer, looksLike(e.head), e.head)
}

func (e *garbageError) Unwrap() error { return errNotPeer }

// looksLike guesses what dialled the peer port by mistake.
func looksLike(head []byte) string {
	switch {
	case len(head) < 4:
		return "a port scan"
	case head[0] == 0 && head[1] == 0:
		return "a Kafka client (use the client port)"
	case head[0] == 0x16 && head[1] == 3:
		return "TLS"
	case head[0] >= 'A' && head[0] <= 'Z' && head[1] >= 'A' && head[1] <= 'Z':
		return "an HTTP request"
	}
	return "something else"
}

// versionError means that the other side speaks the peer protocol in another version.
type versionError struct{ version uint8 }

func (e *versionError) Error() string {
	return fmt.Sprintf("peer protocol version %d is not supported, this node speaks version %d", e.version, prefaceVersion)
}

func writeMessage(w io.Writer, second uint8, body []byte) error {
	m := make([]byte, 0, prefaceHeadSize+len(body))
	m = append(m, prefaceMagic...)
	m = append(m, prefaceVersion, second)
	m = binary.BigEndian.AppendUint16(m, uint16(len(body)))
	m = append(m, body...)
	_, err := w.Write(m)
	return err
}

// readMessage reads exactly one message and not a byte more.
func readMessage(r io.Reader) (second uint8, body []byte, err error) {
	var head [prefaceHeadSize]byte
	if n, err := io.ReadFull(r, head[:4]); err != nil {
		if n > 0 && string(head[:n]) != prefaceMagic[:n] {
			return 0, nil, &garbageError{head: append([]byte(nil), head[:n]...)}
		}
		return 0, nil, err
	}
	if string(head[:4]) != prefaceMagic {
		return 0, nil, &garbageError{head: append([]byte(nil), head[:4]...)}
	}
	if _, err := io.ReadFull(r, head[4:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.BigEndian.Uint16(head[6:]))
	if size > prefaceBodyMax {
		return 0, nil, fmt.Errorf("preface of %d bytes is longer than %d", size, prefaceBodyMax)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	if head[4] != prefaceVersion {
		return 0, nil, &versionError{version: head[4]}
	}
	return head[5], body, nil
}

func writePreface(w io.Writer, p Preface) error {
	body := appendIdentity(nil, p.ClusterID, p.NodeID, p.Folder)
	if p.Kind.hasEpoch() {
		body = binary.BigEndian.AppendUint64(body, uint64(p.BrokerEpoch))
	}
	return writeMessage(w, uint8(p.Kind), body)
}

func readPreface(r io.Reader) (Preface, error) {
	kind, body, err := readMessage(r)
	if err != nil {
		return Preface{}, err
	}
	p := Preface{Kind: Kind(kind)}
	rest, err := takeIdentity(body, &p.ClusterID, &p.NodeID, &p.Folder)
	if err != nil {
		return Preface{}, err
	}
	if p.Kind.hasEpoch() {
		if len(rest) < 8 {
			return Preface{}, io.ErrUnexpectedEOF
		}
		p.BrokerEpoch = fsm.BrokerEpoch(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
	}
	if len(rest) != 0 {
		return Preface{}, fmt.Errorf("preface has %d bytes too many", len(rest))
	}
	return p, nil
}

func writeAnswer(w io.Writer, a answer) error {
	if len(a.sentence) > sentenceSizeMax {
		a.sentence = a.sentence[:sentenceSizeMax]
	}
	body := appendIdentity(nil, a.clusterID, a.nodeID, a.folder)
	return writeMessage(w, uint8(a.code), append(body, a.sentence...))
}

func readAnswer(r io.Reader) (answer, error) {
	code, body, err := readMessage(r)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: RefusalCode(code)}
	rest, err := takeIdentity(body, &a.clusterID, &a.nodeID, &a.folder)
	if err != nil {
		return answer{}, err
	}
	a.sentence = string(rest)
	return a, nil
}

func appendIdentity(dst []byte, cluster string, id fsm.BrokerID, folder [16]byte) []byte {
	if len(cluster) > clusterIDSizeMax {
		panic(fmt.Sprintf("BUG: cluster id %q is longer than %d bytes", cluster, clusterIDSizeMax))
	}
	dst = append(dst, uint8(len(cluster)))
	dst = append(dst, cluster...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	return append(dst, folder[:]...)
}

func takeIdentity(p []byte, cluster *string, id *fsm.BrokerID, folder *[16]byte) ([]byte, error) {
	if len(p) < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	n := int(p[0])
	if n > clusterIDSizeMax || len(p) < 1+n+4+16 {
		return nil, io.ErrUnexpectedEOF
	}
	*cluster = string(p[1 : 1+n])
	p = p[1+n:]
	*id = fsm.BrokerID(int32(binary.BigEndian.Uint32(p)))
	copy(folder[:], p[4:20])
	return p[20:], nil
}
