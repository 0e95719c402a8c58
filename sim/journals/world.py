"""Three nodes, a record of who leads and who is a member, links that break, and what must hold.

- *Named*: at each place that a leader counts, the follower's journal amounts to what the leader's
  did there.
- *I21*: what was finished when a place was held is not unfinished for any later leader.
- *I25*: nor is a seek undone that was answered.
- *I26*: no later leader gives out a message of a strictly ordered channel once more after the next
  one was given out.
- *I16*: no replica removes what a later leader says is there.
- *I11*: whoever is elected has all stages that were answered, but for those that were given up.
- *Calm*: when nothing fails any more, a seek is answered and all journals say the same.

Up to all but one of the members' disks may be wiped, links break at any time and some of their
frames come late, power and processes go, and writes come up short.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.log.fold import Position
from penstock.replica.frames import Frames, encode
from penstock.replica.journalline import (
    ALL,
    AcknowledgePlace,
    Answer,
    AskSnapshot,
    AskSync,
    HelloJournal,
    JournalGuards,
    SendHeld,
    SendRecord,
    TellPlace,
)
from penstock.replica.stageframes import AskStage, SendStage, StageFrame
from sim.journals.node import Broken, Node, Office, Said
from sim.journals.stages import TARGET

NODES = 3
STEPS = 200
CALM_STEPS_MAX = 400


class Frame(NamedTuple):
    """`said`: what the sender's journal amounted to, for the checker alone."""

    source: int
    target: int
    content: Any
    said: Said


class Next(NamedTuple):
    """The token of a message that waits for the FIN of the one before it."""

    ordered: int


class Link(NamedTuple):
    """Of one office to one node, in one session."""

    leader: int
    epoch: int
    node: int
    session: int
    to_node: list[Frame]
    to_leader: list[Frame]


class World:
    def __init__(self, seed: int, guards: JournalGuards = ALL) -> None:
        self.rng = random.Random(seed)
        self.guards = guards
        self.replicas = NODES
        self.nodes = [Node(number, number + 1, guards, self.rng) for number in range(NODES)]
        self.epoch = 0  # the record: this, its leader, and the members by node and replica
        self.leader = 0
        self.members = {(node.number, node.replica) for node in self.nodes}
        self.links: list[Link] = []
        self.late: list[Frame] = []
        self.sessions = 0
        self.sought = 0  # the number of the newest seek
        self.answered = 0
        self.given = 0  # the newest message of the ordered channel that was given out
        self.finished_held = 0
        self.stages = 0  # put so far
        self.staged: set[bytes] = set()  # those that were answered, and are not given up
        self.books: dict[tuple[int, Position], Said] = {}
        self.seen: Counter[str] = Counter()
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.deliver, 60), (self.finish, 8), (self.sync, 24), (self.seek, 6),
            (self.link, 6), (self.move_start, 2), (self.roll, 1), (self.cut, 2),
            (self.deliver_late, 4), (self.elect, 2), (self.leave_out, 2), (self.stop, 2),
            (self.stop_all, 1), (self.wipe, 1), (self.fail_write, 1), (self.try_again, 3),
            (self.sync_all, 4), (self.finish_in_order, 4), (self.outlive, 1), (self.stage, 3),
            (self.drop_stage, 1), (self.grow, 8),
        ]  # fmt: skip

    def play(self) -> None:
        self.elect()
        steps, weights = zip(*self.steps, strict=True)
        for _ in range(STEPS):
            self.rng.choices(steps, weights)[0]()
            self.settle()
        self.calm()

    # --- what leaders do ---

    def office(self) -> tuple[Node, Office] | None:
        """Of any leader; one that was deposed may not know it yet."""
        led = [(node, node.office) for node in self.nodes if node.office is not None]
        return self.rng.choice(led) if led else None

    def write(self, node: Node, office: Office, now: Said, begin: bool = False) -> bool:
        return office.say(now, begin)

    def note_written(self, office: Office) -> None:
        self.books[office.epoch, office.line.place] = office.said

    def finish(self) -> None:
        if found := self.office():
            node, office = found
            self.write(node, office, office.said._replace(finished=office.said.finished + 1))

    def seek(self) -> None:
        if found := self.office():
            node, office = found
            self.sought += 1
            if self.write(node, office, office.said._replace(sought=self.sought)):
                office.line.when_held(office.line.place, self.sought)

    def finish_in_order(self) -> None:
        """The message at the cursor is given out, and finished at once; then comes the next."""
        if found := self.office():
            node, office = found
            now = office.said._replace(ordered=office.said.ordered + 1)
            if self.write(node, office, now):
                office.line.when_finished(office.line.place, Next(now.ordered))

    def stage(self) -> None:
        if found := self.office():
            self.stages += 1
            self.put_stage(found[1], b"stage %d" % self.stages)

    def put_stage(self, office: Office, content: bytes) -> None:
        def answered(error: PenstockError | None) -> None:
            if error is None:
                self.staged.add(content)
            self.seen["staged" if error is None else "not staged"] += 1

        office.stages.put(content, 0, answered)

    def drop_stage(self) -> None:
        if found := self.office():
            _, office = found
            if files := sorted(office.known.stages, key=lambda file: file.content):
                file = self.rng.choice(files)
                self.staged.discard(file.content)
                office.stages.drop([file])

    def outlive(self) -> None:
        """The clock of a follower's node runs ahead: all that is finished seems too old to it."""
        node = self.rng.choice(self.nodes)
        if node.office is None:
            node.follower.outlived(node.said.finished)

    def move_start(self) -> None:
        if found := self.office():
            node, office = found
            self.write(node, office, office.said._replace(start=office.said.start + 1))

    def roll(self) -> None:
        if found := self.office():
            self.write(*found, found[1].said, begin=True)

    def leave_out(self) -> None:
        """The leader in office leaves out a member."""
        node = self.nodes[self.leader]
        if node.office is None or node.office.epoch != self.epoch:
            return
        other = self.rng.choice([other for other in self.nodes if other is not node])
        if (other.number, other.replica) in self.members:
            gone = {one for one in self.members if one[0] == other.number}
            self.members -= gone
            self.seen["shrunk"] += len(gone)
        self.need(node.office)

    def grow(self) -> None:
        """Whoever is level becomes a member."""
        node = self.nodes[self.leader]
        if node.office is None or node.office.epoch != self.epoch:
            return
        for other in self.nodes:
            entry = (other.number, other.replica)
            is_new = other is not node and entry not in self.members
            if is_new and node.office.line.is_level(*entry):
                self.members.add(entry)
                self.seen["grown"] += 1
        self.need(node.office)

    def need(self, office: Office) -> None:
        office.line.needs(self.members)
        office.stages.needs(self.members)

    def elect(self) -> None:
        """A member takes office with what its journal says."""
        able = [node for node in self.nodes if (node.number, node.replica) in self.members]
        node = self.rng.choice(able)
        self.epoch += 1
        self.leader = node.number
        node.promised = self.epoch
        self.unlink_all(node)
        node.open()
        office = node.office = Office(node, self.epoch, self.guards)
        office.books = partial(self.note_written, office)
        self.need(office)
        self.check_election(node, office.said)
        self.seen["elected"] += 1
        for other in self.nodes:
            if other is not node:
                self.connect(node, office, other)

    def check_election(self, node: Node, now: Said) -> None:
        here = {node.files.stages[one].content for one, _ in now.stages if one in node.files.stages}
        if lost := self.staged - here:
            raise Broken(f"I11: {sorted(lost)} were answered, and the leader lacks them")
        if now.sought < self.answered:
            raise Broken(f"I25: seek {self.answered} was answered, the leader knows {now.sought}")
        if now.ordered < self.given:
            raise Broken(f"I26: {self.given} was given out, the leader goes on at {now.ordered}")
        if now.finished < self.finished_held:
            raise Broken(f"I21: {self.finished_held} was held, the leader knows {now.finished}")
        self.check_starts(now)

    def check_starts(self, now: Said) -> None:
        removed = max(node.log_start for node in self.nodes)
        if removed > now.start:
            raise Broken(f"I16: removed up to {removed}, the leader's log begins at {now.start}")

    # --- links ---

    def link(self) -> None:
        if found := self.office():
            node, office = found
            others = [other for other in self.nodes if other is not node]
            self.connect(node, office, self.rng.choice(others))

    def connect(self, node: Node, office: Office, other: Node) -> None:
        for link in [
            one for one in self.links if {one.leader, one.node} == {node.number, other.number}
        ]:
            self.unlink(link)
        self.sessions += 1
        link = Link(node.number, office.epoch, other.number, self.sessions, [], [])
        office.line.linked(other.number, link.session)
        self.links.append(link)
        office.stages.linked(other.number)

    def cut(self) -> None:
        if self.links:
            self.unlink(self.rng.choice(self.links))

    def unlink(self, link: Link) -> None:
        self.links.remove(link)
        for frame in (*link.to_node, *link.to_leader):
            if self.rng.random() < 0.5:
                self.late.append(frame)
        office = self.nodes[link.leader].office
        if office is not None and office.epoch == link.epoch:
            office.line.unlinked(link.node)
            office.stages.unlinked(link.node)

    def unlink_all(self, node: Node) -> None:
        for link in [one for one in self.links if node.number in (one.leader, one.node)]:
            self.unlink(link)

    def deliver(self) -> None:
        queues = [q for link in self.links for q in (link.to_node, link.to_leader) if q]
        if queues:
            self.hand_over(self.rng.choice(queues).pop(0))

    def deliver_late(self) -> None:
        if self.late:
            self.hand_over(self.late.pop(self.rng.randrange(len(self.late))))
            self.seen["late"] += 1

    def hand_over(self, frame: Frame) -> None:
        node = self.nodes[frame.target]
        content = frame.content
        if isinstance(content, bytes):
            self.bring_stages(node, frame.source, content)
        elif isinstance(content, TellPlace | AskSnapshot | AcknowledgePlace):
            self.tell_leader(node, frame)
        elif isinstance(content, HelloJournal):
            self.greet(node, frame.source, content)
        elif node.office is None:
            follow(node, content)
        self.settle()

    def bring_stages(self, node: Node, source: int, data: bytes) -> None:
        for _, content in Frames(source).feed(data):
            if not isinstance(content, StageFrame):
                raise RuntimeError(f"the shells of stages sent {content}")
            if node.office is not None:
                node.office.stages.receive(source, content)
            elif isinstance(content, SendStage):
                node.stages.came(source, content)
                self.seen["stages came"] += 1
            elif isinstance(content, AskStage) and content.number in node.files.stages:
                file = node.files.stages[content.number].content
                node.send(source, None, encode(TARGET, SendStage(1, content.number, file)))

    def greet(self, node: Node, source: int, hello: HelloJournal) -> None:
        if hello.epoch < node.promised or not self.is_up(hello.session):
            return
        if node.office is not None:
            self.leave(node)
        node.promised = hello.epoch
        node.follower.hello(hello.session, hello.epoch)
        node.stages.greeted(source)

    def leave(self, node: Node) -> None:
        if node.office is not None:
            node.office.line.leave()
            node.office.stages.leave()
            for link in [one for one in self.links if one.leader == node.number]:
                self.unlink(link)
            node.open()

    def is_up(self, session: int) -> bool:
        return any(link.session == session for link in self.links)

    def tell_leader(self, node: Node, frame: Frame) -> None:
        office, content = node.office, frame.content
        if office is None or content.epoch != office.epoch:
            return
        line, source = office.line, frame.source
        match content:
            case TellPlace(session, _, replica, place):
                line.told(source, session, replica, place)
            case AskSnapshot(session, _):
                line.asked(source, session)
                self.seen["asked"] += 1
            case AcknowledgePlace(session, _, replica, written, synced):
                line.acknowledged(source, session, replica, written, synced)
                if self.is_up(session):
                    self.check_place(office, written, frame.said)

    def check_place(self, office: Office, written: Position, now: Said) -> None:
        known = self.books.get((office.epoch, written))
        if known is not None and known != now:
            raise Broken(f"at {written} the leader had {known}, the follower has {now}")

    # --- after each event ---

    def settle(self) -> None:
        """Carries out what the machines want; a leader that must begin does so."""
        for node in self.nodes:
            office = node.office
            if office is not None and office.line.must_begin:
                self.write(node, office, office.said)
            for effect in node.take_effects():
                self.carry_out(node, effect)
            self.post_stages(node)
            if office is not None:
                self.note_held(office)
        record_leader = self.nodes[self.leader].office
        if record_leader is not None and record_leader.epoch == self.epoch:
            self.check_starts(record_leader.said)

    def carry_out(self, node: Node, effect: Any) -> None:
        match effect:
            case Answer(Next(ordered)):
                self.given = max(self.given, ordered)
                self.seen["given"] += 1
            case Answer(token) if callable(token):
                token(None)
            case Answer(token):
                self.answered = max(self.answered, int(str(token)))
                self.seen["answered"] += 1
            case HelloJournal() | SendRecord() | SendHeld() | AskSync():
                self.post(node, effect, effect.session, to_node=True)
            case TellPlace() | AskSnapshot() | AcknowledgePlace():
                self.post(node, effect, effect.session, to_node=False)
            case _:
                raise RuntimeError(f"an effect that the shell does not know: {effect}")

    def post_stages(self, node: Node) -> None:
        sent, node.sent = node.sent, []
        for target, data in sent:
            for link in self.links:
                if {link.leader, link.node} == {node.number, target}:
                    queue = link.to_node if link.node == target else link.to_leader
                    queue.append(Frame(node.number, target, data, node.said))

    def post(self, node: Node, content: Any, session: int, to_node: bool) -> None:
        for link in self.links:
            if link.session == session:
                target = link.node if to_node else link.leader
                frame = Frame(node.number, target, content, node.said)
                (link.to_node if to_node else link.to_leader).append(frame)

    def note_held(self, office: Office) -> None:
        known = self.books.get((office.epoch, office.line.held))
        if known is not None:
            self.finished_held = max(self.finished_held, known.finished)
            self.seen["held"] += 1

    # --- what goes wrong ---

    def sync(self) -> None:
        node = self.rng.choice(self.nodes)
        node.sync()

    def sync_all(self) -> None:
        self.rng.choice(self.nodes).sync_all()

    def stop(self) -> None:
        self.stop_one(self.rng.choice(self.nodes), power=self.rng.random() < 0.5)

    def stop_all(self) -> None:
        """The power of the whole site."""
        for node in self.nodes:
            self.stop_one(node, power=True)

    def stop_one(self, node: Node, power: bool) -> None:
        if node.office is not None:
            node.office.line.leave()
            node.office.stages.leave()
        self.unlink_all(node)
        node.stop(self.rng, power)
        self.seen["stopped"] += 1

    def wipe(self) -> None:
        """One member at least stays sound."""
        node = self.rng.choice(self.nodes)
        sound = {(one.number, one.replica) for one in self.nodes if one is not node}
        if not sound & self.members:
            return
        self.unlink_all(node)
        self.replicas += 1
        node.wipe(self.replicas)
        self.seen["wiped"] += 1

    def try_again(self) -> None:
        """Housekeeping: what the disk refused is asked for again."""
        node = self.rng.choice(self.nodes)
        node.follower.try_again()
        node.stages.settle()
        if node.office is not None:
            node.office.stages.settle()

    def fail_write(self) -> None:
        self.rng.choice(self.nodes).fail_write(self.rng)

    # --- calm ---

    def calm(self) -> None:
        """Nothing fails any more: what is asked for is done, and all are equal."""
        self.late.clear()
        for node in self.nodes:
            node.disk.faults.clear()
            node.files.dice = None
            self.leave(node)
        self.elect()
        node = self.nodes[self.leader]
        office = node.office
        if office is None:
            raise RuntimeError("an election without an office")
        self.members &= {(one.number, one.replica) for one in self.nodes}
        self.need(office)
        self.put_stage(office, b"calm")
        self.seek_in_calm(office)
        self.check_calm(node)

    def seek_in_calm(self, office: Office) -> None:
        self.settle()
        self.sought += 1
        now = office.said._replace(sought=self.sought, start=office.said.start + 1)
        self.write(self.nodes[self.leader], office, now)
        office.line.when_held(office.line.place, self.sought)
        for _ in range(CALM_STEPS_MAX):
            self.settle()
            for node in self.nodes:
                node.sync()
            self.settle()
            if not any(link.to_node or link.to_leader for link in self.links):
                return
            self.deliver()
        raise Broken("Calm: frames without end")

    def check_calm(self, leader: Node) -> None:
        if self.answered != self.sought:
            raise Broken(f"Calm: seek {self.sought} is not answered, {self.answered} was")
        if b"calm" not in self.staged:
            raise Broken("Calm: a stage is not answered")
        for node in self.nodes:
            if leader.said.stages and set(node.files.stages) != set(dict(leader.said.stages)):
                raise Broken(f"Calm: node {node.number} has {list(node.files.stages)}")
            if (node.place, node.said) != (leader.place, leader.said):
                raise Broken(f"Calm: node {node.number} has {node.said}, not {leader.said}")
            if (node.number, node.replica) in self.members and node.log_start != leader.said.start:
                raise Broken(f"Calm: node {node.number} begins at {node.log_start}")


def follow(node: Node, content: SendRecord | SendHeld | AskSync) -> None:
    match content:
        case AskSync(_, session, epoch, place):
            node.follower.ask_sync(session, epoch, place)
        case SendHeld(_, session, epoch, held):
            node.follower.held(session, epoch, held)
        case SendRecord(_, session, epoch, place, record, held):
            node.follower.record(session, epoch, place, record, held)
