package taskassignor;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Set;
import org.apache.kafka.streams.processor.TaskId;

/**
 * What happens when nobody decides: everything stays where it is; a task without owner goes to a client that holds a
 * standby of it, else to the least loaded client; and the group asks again later.
 */
final class Keep {
    final Decision decision;
    final int orphans;

    Keep(final State state, final long retryAtMs) {
        final int count = state.clients.length;
        final int[] owner = new int[state.tasks.length];
        Arrays.fill(owner, -1);
        final int[] load = new int[count];
        final int[][] standbys = new int[count][];
        for (int client = 0; client < count; client++) {
            for (final int task : Decision.numbers(state, state.clients[client].previousActiveTasks())) {
                if (owner[task] < 0) {
                    owner[task] = client;
                    load[client]++;
                }
            }
            final Set<TaskId> held = new HashSet<>(state.clients[client].previousStandbyTasks());
            standbys[client] = Decision.numbers(state, held);
        }
        // A holder of the state comes first, among holders the one with the fewest tasks per thread.
        final int[] holder = new int[state.tasks.length];
        Arrays.fill(holder, -1);
        final Comparator<Integer> byLoad = Comparator
            .comparingDouble((Integer client) -> (double) load[client] / Math.max(1, state.clients[client].numProcessingThreads()))
            .thenComparing(Comparator.naturalOrder());
        for (int client = 0; client < count; client++) {
            for (final int task : standbys[client]) {
                if (owner[task] < 0 && state.hasChangelog[task] && (holder[task] < 0 || byLoad.compare(client, holder[task]) < 0)) {
                    holder[task] = client;
                }
            }
        }
        int found = 0;
        for (int task = 0; task < owner.length; task++) {
            if (owner[task] < 0) {
                found++;
                if (holder[task] >= 0) {
                    owner[task] = holder[task];
                    load[holder[task]]++;
                }
            }
        }
        final PriorityQueue<Integer> least = new PriorityQueue<>(byLoad);
        for (int client = 0; client < count; client++) {
            least.add(client);
        }
        for (int task = 0; task < owner.length; task++) {
            if (owner[task] < 0) {
                // Out, changed, in again: the queue must not hold what changes.
                final int client = least.remove();
                owner[task] = client;
                load[client]++;
                least.add(client);
            }
        }
        orphans = found;
        decision = decision(state, owner, nearest(state, owner, standbys), retryAtMs);
    }

    /**
     * Of the clients that hold state of a task, those that are least behind, as many as standbys are configured: what an
     * instance finds on its disk when it starts counts as a standby, too, and would pile up.
     */
    private static int[][] nearest(final State state, final int[] owner, final int[][] held) {
        final List<List<Integer>> holders = new ArrayList<>();
        for (int task = 0; task < owner.length; task++) {
            holders.add(new ArrayList<>());
        }
        for (int client = 0; client < held.length; client++) {
            for (final int task : held[client]) {
                if (owner[task] != client && state.hasChangelog[task]) {
                    holders.get(task).add(client);
                }
            }
        }
        final List<List<Integer>> kept = new ArrayList<>();
        for (int client = 0; client < held.length; client++) {
            kept.add(new ArrayList<>());
        }
        for (int task = 0; task < owner.length; task++) {
            final int number = task;
            holders.get(task).stream()
                .sorted(Comparator.comparingLong((Integer client) -> state.hasLags ? state.lag(client, number) : 0).thenComparing(Comparator.naturalOrder()))
                .limit(state.configs.numStandbyReplicas())
                .forEach(client -> kept.get(client).add(number));
        }
        return kept.stream().map(tasks -> tasks.stream().mapToInt(task -> task).toArray()).toArray(int[][]::new);
    }

    private static Decision decision(final State state, final int[] owner, final int[][] standbys, final long retryAtMs) {
        final int count = state.clients.length;
        final List<List<Integer>> active = new ArrayList<>();
        for (int client = 0; client < count; client++) {
            active.add(new ArrayList<>());
        }
        for (int task = 0; task < owner.length; task++) {
            active.get(owner[task]).add(task);
        }
        final int[][] actives = new int[count][];
        final long[] deadlines = new long[count];
        Arrays.fill(deadlines, State.MISSING);
        for (int client = 0; client < count; client++) {
            actives[client] = active.get(client).stream().mapToInt(task -> task).toArray();
        }
        // One client is enough to wake the group.
        if (count > 0) {
            deadlines[0] = retryAtMs;
        }
        return new Decision(actives, standbys, deadlines);
    }
}
