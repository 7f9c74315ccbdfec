package taskassignor;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsAssignment.AssignedTask;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.assignment.TaskAssignmentUtils;
import org.apache.kafka.streams.processor.assignment.TaskAssignmentUtils.RackAwareOptimizationParams;
import org.apache.kafka.streams.processor.assignment.TaskAssignor.TaskAssignment;
import org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.FallbackPriorTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor;
import org.apache.kafka.streams.processor.internals.assignment.LegacyStickyTaskAssignor;

/** What can be asked: {"operation", "state", "inOrder"?, "assignment"?, "params"?}. Kafka answers; nothing is decided here. */
final class Questions {
    private Questions() { }

    static ObjectNode answer(final JsonNode question, final ObjectNode reply) {
        if (question.has("keys")) {
            return orderOfQueue(question.get("keys"), reply.putArray("order"), reply);
        } else if (question.has("taskIds")) {
            return orderOfMap(question.get("taskIds"), reply.putArray("order"), reply);
        } else if (question.has("dsl")) {
            return Dsl.answer(question, reply);
        } else if (question.has("members")) {
            return new ConsumerGroup(question).answer(question.get("assignor").asText(), reply);
        }
        final Snapshot state = new Snapshot(question.get("state"), question.path("inOrder").asBoolean(false));
        final JsonNode params = question.path("params");
        switch (question.get("operation").asText()) {
            case "ha" -> new InternalAssignors(state).answer(new HighAvailabilityTaskAssignor(), reply);
            case "legacy_sticky" -> new InternalAssignors(state).answer(new LegacyStickyTaskAssignor(), reply);
            case "fallback_prior" -> new InternalAssignors(state).answer(new FallbackPriorTaskAssignor(), reply);
            case "identity" -> placements(reply, Stopwatch.time(() -> TaskAssignmentUtils.identityAssignment(state)).values());
            case "sticky" -> {
                final boolean preserve = params.path("mustPreserveActiveTaskAssignment").asBoolean(false);
                placements(reply, Stopwatch.time(() -> new StickyTaskAssignor(preserve).assign(state)).assignment());
            }
            case "validate" -> {
                final TaskAssignment given = new TaskAssignment(Snapshot.assignments(question.get("assignment")));
                reply.put("error", Stopwatch.time(() -> TaskAssignmentUtils.validateTaskAssignment(state, given)).name());
            }
            case "default_standby", "optimize_active", "optimize_standby" -> {
                final Map<ProcessId, KafkaStreamsAssignment> changed = new HashMap<>();
                Snapshot.assignments(question.get("assignment")).forEach(one -> changed.put(one.processId(), one));
                switch (question.get("operation").asText()) {
                    case "default_standby" -> Stopwatch.time(() -> TaskAssignmentUtils.defaultStandbyTaskAssignment(state, changed));
                    case "optimize_active" -> {
                        final RackAwareOptimizationParams wanted = optimization(state, params);
                        Stopwatch.time(() -> TaskAssignmentUtils.optimizeRackAwareActiveTasks(wanted, changed));
                    }
                    default -> {
                        final RackAwareOptimizationParams wanted = optimization(state, params);
                        Stopwatch.time(() -> TaskAssignmentUtils.optimizeRackAwareStandbyTasks(wanted, changed));
                    }
                }
                placements(reply, changed.values());
            }
            // The jar of the bridge, whose classes are of this package.
            case "bridge_message" -> reply.put("base64", Base64.getEncoder().encodeToString(Wire.assign(new State(state), Map.of(), 1, null)));
            case "bridge_snapshot" -> reply.put("text", SnapshotText.state(new State(state), "recorded"));
            case "bridge_keep" -> {
                final State numbered = new State(state);
                placements(reply, new Keep(numbered, 0).decision.toKafka(numbered).assignment());
            }
            case "bridge_java" -> {
                final State numbered = new State(state);
                try {
                    placements(reply, JavaDecision.ofDefault(numbered).toKafka(numbered).assignment());
                } catch (final RuntimeException failed) {
                    throw failed;
                } catch (final Exception failed) {
                    throw new IllegalStateException(failed);
                }
            }
            default -> throw new IllegalArgumentException("no such operation: " + question.get("operation"));
        }
        return reply;
    }

    /** Positions of the keys in the order in which a PriorityQueue gives them up. */
    private static ObjectNode orderOfQueue(final JsonNode keys, final ArrayNode order, final ObjectNode reply) {
        final PriorityQueue<Integer> positions = new PriorityQueue<>(Comparator.comparing(position -> keys.get(position).asLong()));
        for (int position = 0; position < keys.size(); position++) {
            positions.add(position);
        }
        while (!positions.isEmpty()) {
            order.add(positions.poll());
        }
        return reply;
    }

    /** The task ids in the order in which a HashMap iterates that was filled in the order given. */
    private static ObjectNode orderOfMap(final JsonNode ids, final ArrayNode order, final ObjectNode reply) {
        final Map<TaskId, Integer> map = new HashMap<>();
        ids.forEach(id -> map.put(TaskId.parse(id.asText()), map.size()));
        map.keySet().forEach(id -> order.add(id.toString()));
        return reply;
    }

    private static RackAwareOptimizationParams optimization(final Snapshot state, final JsonNode json) {
        RackAwareOptimizationParams params = RackAwareOptimizationParams.of(state);
        final JsonNode tasks = json.path("tasks");
        if (tasks.isArray()) {
            params = params.forTasks(Snapshot.taskIds(tasks));
        } else if (tasks.isTextual()) {
            params = tasks.asText().equals("stateful") ? params.forStatefulTasks() : params.forStatelessTasks();
        }
        if (json.hasNonNull("trafficCost")) {
            params = params.withTrafficCostOverride(json.get("trafficCost").asInt());
        }
        if (json.hasNonNull("nonOverlapCost")) {
            params = params.withNonOverlapCostOverride(json.get("nonOverlapCost").asInt());
        }
        return params;
    }

    private static void placements(final ObjectNode reply, final Collection<KafkaStreamsAssignment> assignments) {
        final ArrayNode list = reply.putArray("assignment");
        final Map<ProcessId, KafkaStreamsAssignment> sorted = new TreeMap<>();
        assignments.forEach(one -> sorted.put(one.processId(), one));
        sorted.forEach((id, one) -> {
            final Set<TaskId> active = new TreeSet<>();
            final Set<TaskId> standby = new TreeSet<>();
            one.tasks().values().forEach(task -> (task.type() == AssignedTask.Type.ACTIVE ? active : standby).add(task.id()));
            placement(list, id, active, standby);
        });
    }

    static void placement(final ArrayNode list, final ProcessId id, final Set<TaskId> active, final Set<TaskId> standby) {
        final ObjectNode one = list.addObject().put("processId", id.id().toString());
        final ArrayNode actives = one.putArray("activeTasks");
        new TreeSet<>(active).forEach(task -> actives.add(task.toString()));
        final ArrayNode standbys = one.putArray("standbyTasks");
        new TreeSet<>(standby).forEach(task -> standbys.add(task.toString()));
    }
}
