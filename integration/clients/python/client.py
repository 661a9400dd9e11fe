"""The client program for kafka-python; see the conventions in integration/clients."""

import json
import signal
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

PADDING = "a wall in a river. "


class Stop:
    """Becomes true with SIGTERM."""

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_):
        self.asked = True


def say(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")


def produce(brokers, topic, codec, first, count):
    producer = KafkaProducer(
        bootstrap_servers=brokers,
        acks="all",
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    sent = []
    for n in range(int(first), int(first) + int(count)):
        sent.append((n, producer.send(topic, key=b"%d" % n, value=b"%d:%s" % (n, PADDING.encode() * 10))))
        if len(sent) == 500:
            settle(sent)
    settle(sent)
    producer.close()


def settle(sent):
    for n, future in sent:
        future.get(timeout=120)
        say(step="acked", n=n)
    sys.stdout.flush()
    sent.clear()


def deliver(consumer, stop):
    while not stop.asked:
        for records in consumer.poll(timeout_ms=200).values():
            for r in records:
                say(step="read", partition=r.partition, offset=r.offset, n=int(r.value.split(b":")[0]))
        sys.stdout.flush()


def read(brokers, topic):
    stop = Stop()
    consumer = KafkaConsumer(bootstrap_servers=brokers, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)])
    deliver(consumer, stop)
    consumer.close()


def group(brokers, topic, name):
    stop = Stop()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=brokers,
        group_id=name,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=500,
        session_timeout_ms=10000,
        heartbeat_interval_ms=1000,
    )
    deliver(consumer, stop)
    consumer.close()


def main(mode, brokers, *args):
    {"produce": produce, "read": read, "group": group}[mode](brokers.split(","), *args)


if __name__ == "__main__":
    main(*sys.argv[1:])
