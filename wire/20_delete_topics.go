package wire

import "github.com/weirmq/weir/wire/codec"

// KeyDeleteTopics is the API that deletes topics.
//
// Version 4 is flexible, 5 adds an error message, 6 names topics by name or id.
const KeyDeleteTopics Key = 20

// DeleteTopicsRequest asks for topics to be deleted.
type DeleteTopicsRequest struct {
	Topics     []DeleteTopicState // from 6
	TopicNames []string           // before 6
	TimeoutMs  int32
}

// DeleteTopicState names one topic, by name or by id.
type DeleteTopicState struct {
	Name    *string  // nil when named by id
	TopicID [16]byte // zero when named by name
}

// DeleteTopicsResponse answers a DeleteTopicsRequest.
type DeleteTopicsResponse struct {
	ThrottleTimeMs int32
	Responses      []DeletableTopicResult
}

// DeletableTopicResult is one topic of a DeleteTopicsResponse.
type DeletableTopicResult struct {
	Name         *string  // nil, from 6 only, for an unknown id
	TopicID      [16]byte // from 6
	ErrorCode    Code
	ErrorMessage *string // from 5
}

// Key is KeyDeleteTopics.
func (*DeleteTopicsRequest) Key() Key { return KeyDeleteTopics }

// Key is KeyDeleteTopics.
func (*DeleteTopicsResponse) Key() Key { return KeyDeleteTopics }

func (r *DeleteTopicsRequest) code(c *codec.Coder) {
	if c.Version() >= 6 {
		codec.ArrayOf(c, &r.Topics, 24, codeDeleteTopicState)
	} else {
		c.Strings(&r.TopicNames)
	}
	c.Int32(&r.TimeoutMs)
	c.Tags()
}

func codeDeleteTopicState(c *codec.Coder, t *DeleteTopicState) {
	c.NullableString(&t.Name)
	c.UUID(&t.TopicID)
	c.Tags()
}

func (r *DeleteTopicsResponse) code(c *codec.Coder) {
	c.Int32(&r.ThrottleTimeMs)
	codec.ArrayOf(c, &r.Responses, 40, codeDeletableTopicResult)
	c.Tags()
}

func codeDeletableTopicResult(c *codec.Coder, t *DeletableTopicResult) {
	v := c.Version()
	codeNameFrom(c, &t.Name, 6)
	if v >= 6 {
		c.UUID(&t.TopicID)
	}
	codeCode(c, &t.ErrorCode)
	if v >= 5 {
		c.NullableString(&t.ErrorMessage)
	}
	c.Tags()
}
