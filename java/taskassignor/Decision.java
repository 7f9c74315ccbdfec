package taskassignor;

import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.TaskAssignment;

/** An assignment in the numbers of a {@link State}. */
final class Decision {
    final int[][] active;
    final int[][] standby;
    /** Follow-up rebalances by client, milliseconds since the epoch; MISSING: none. */
    final long[] deadlineMs;

    Decision(final int[][] active, final int[][] standby, final long[] deadlineMs) {
        this.active = active;
        this.standby = standby;
        this.deadlineMs = deadlineMs;
    }

    static Decision of(final State state, final TaskAssignment assignment) {
        final int clients = state.clients.length;
        final Decision decision = new Decision(new int[clients][0], new int[clients][0], new long[clients]);
        Arrays.fill(decision.deadlineMs, State.MISSING);
        for (final KafkaStreamsAssignment given : assignment.assignment()) {
            final int client = Arrays.binarySearch(state.processes, given.processId());
            if (client < 0) {
                throw new IllegalStateException("There is no client " + given.processId() + ".");
            }
            decision.active[client] = numbers(state, given, AssignedTask.Type.ACTIVE);
            decision.standby[client] = numbers(state, given, AssignedTask.Type.STANDBY);
            given.followupRebalanceDeadline().ifPresent(when -> decision.deadlineMs[client] = when.toEpochMilli());
        }
        return decision;
    }

    private static int[] numbers(final State state, final KafkaStreamsAssignment given, final AssignedTask.Type type) {
        return given.tasks().values().stream().filter(task -> task.type() == type).mapToInt(task -> {
            final int number = state.number(task.id());
            if (number < 0) {
                throw new IllegalStateException("There is no task " + task.id() + ".");
            }
            return number;
        }).sorted().toArray();
    }

    /** Numbers of the tasks in a set, sorted. */
    static int[] numbers(final State state, final Collection<TaskId> tasks) {
        return tasks.stream().mapToInt(state::number).filter(task -> task >= 0).sorted().toArray();
    }

    /**
     * What is wrong with this, or null. Stricter than Kafka, which lets tasks without an owner pass: every task has
     * exactly one active owner, and no client holds a task twice.
     */
    String problem(final State state) {
        final int[] owner = new int[state.tasks.length];
        Arrays.fill(owner, -1);
        for (int client = 0; client < active.length; client++) {
            for (final int task : active[client]) {
                if (task < 0 || task >= owner.length) {
                    return "there is no task number " + task;
                }
                if (owner[task] >= 0) {
                    return "task " + state.tasks[task] + " is active twice, on " + state.processes[owner[task]] + " and on "
                        + state.processes[client];
                }
                owner[task] = client;
            }
        }
        for (int task = 0; task < owner.length; task++) {
            if (owner[task] < 0) {
                return "task " + state.tasks[task] + " is active on no client";
            }
        }
        final int[] seen = new int[state.tasks.length];
        for (int client = 0; client < standby.length; client++) {
            for (final int task : standby[client]) {
                if (task < 0 || task >= owner.length) {
                    return "there is no task number " + task;
                }
                if (owner[task] == client || seen[task] == client + 1) {
                    return "client " + state.processes[client] + " has task " + state.tasks[task] + " twice";
                }
                if (!state.infos[task].isStateful()) {
                    return "task " + state.tasks[task] + " has no state, but a standby on " + state.processes[client];
                }
                seen[task] = client + 1;
            }
        }
        return null;
    }

    TaskAssignment toKafka(final State state) {
        final List<KafkaStreamsAssignment> all = new ArrayList<>(active.length);
        for (int client = 0; client < active.length; client++) {
            final Set<AssignedTask> tasks = new HashSet<>((active[client].length + standby[client].length) * 2);
            for (final int task : active[client]) {
                tasks.add(new AssignedTask(state.tasks[task], AssignedTask.Type.ACTIVE));
            }
            for (final int task : standby[client]) {
                tasks.add(new AssignedTask(state.tasks[task], AssignedTask.Type.STANDBY));
            }
            final KafkaStreamsAssignment one = KafkaStreamsAssignment.of(state.processes[client], tasks);
            all.add(deadlineMs[client] == State.MISSING ? one : one.withFollowupRebalance(Instant.ofEpochMilli(deadlineMs[client])));
        }
        return new TaskAssignment(all);
    }

    int standbys() {
        return Arrays.stream(standby).mapToInt(tasks -> tasks.length).sum();
    }
}
